"""How RFC 8785 writes a double: as ECMAScript's ``Number::toString`` does (ECMA-262, section 6.1.6.1.20)."""

EXACT_INTEGER_MAX = 2**53 - 1
"""Up to here (and down to its negative) every integer is a double of its own, so Python's digits are ECMAScript's."""

_PLAIN_DIGITS_MAX = 21
_LEADING_ZEROS_MAX = 6


def number_text(number: float) -> str:
    """Return the shortest text that reads back as `number`, in ECMAScript's notation.

    Python and ECMAScript agree on the digits (the shortest that round-trip) and differ in where they put the point
    and when they use an exponent.

    Parameters
    ----------
    number
        Finite.

    Raises
    ------
    ValueError
        `number` is NaN or infinite, which JSON cannot express.
    """
    if number == 0:
        return "0"
    if number - number != 0:
        message = "NaN and infinite numbers cannot be written as JSON"
        raise ValueError(message)
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # number = 0.digits * 10 ** point
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= _PLAIN_DIGITS_MAX:
        return sign + digits + "0" * (point - count)
    if 0 < point <= _PLAIN_DIGITS_MAX:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -_LEADING_ZEROS_MAX < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    head = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{sign}{head}e{point - 1:+d}"
