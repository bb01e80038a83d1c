"""The doctor's route, under the path that its contract names."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, Operation

from api.doctor.examine import examine
from api.doctor.models import Checks


def _answer(call: Call, _transaction: Transaction) -> Answer:
    checks: Checks = call.prepared
    return Answer(200, checks)


OPERATIONS = (
    Operation(
        id="doctor.checks",
        method="GET",
        path="/doctor/jobengine-web/checks",
        summary="Make all health checks and say what to do.",
        permission="ops.health",
        responses={200: Checks},
        prepare=examine,
        handle=_answer,
    ),
)
