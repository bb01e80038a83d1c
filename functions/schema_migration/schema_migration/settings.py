"""Settings of the deploy hook."""

from functools import cache

from pydantic_settings import BaseSettings, SettingsConfigDict


class MigrationSettings(BaseSettings):
    """Ids of the secrets that only this function may read: `EVALWARD_MIGRATION__<NAME>`.

    Attributes
    ----------
    admin_secret_arn
        The database server's master user: JSON username, password; host, port, dbname where they are not the owner's.
    owner_secret_arn, app_secret_arn
        The two roles' secrets: JSON host, port, dbname, username, password.
    admin_key_secret_arn
        Where the first API key is put.
    """

    model_config = SettingsConfigDict(env_prefix="EVALWARD_MIGRATION__", frozen=True)

    admin_secret_arn: str
    owner_secret_arn: str
    app_secret_arn: str
    admin_key_secret_arn: str


@cache
def load_migration_settings() -> MigrationSettings:
    """Read the environment once.

    Raises
    ------
    pydantic.ValidationError
        A setting is missing; the message names it.
    """
    return MigrationSettings()  # pyright: ignore[reportCallIssue] - the values come from the environment
