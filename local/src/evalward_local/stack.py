"""Starts and stops the whole stack."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from evalward_local.account import REGION
from evalward_local.children import Children, plain_environment
from evalward_local.code_locations import locate_build, locate_source, mount_runtime
from evalward_local.control_api import ControlApi
from evalward_local.custom_resources import CustomResourceDesk
from evalward_local.drain import WorkLedger
from evalward_local.event_source_poller import EventSourcePoller
from evalward_local.function_pool import FunctionPool
from evalward_local.functions import FunctionSettings
from evalward_local.http_front import HttpFront
from evalward_local.incoming_watch import IncomingWatch
from evalward_local.intrinsics import CreatedResource, Resolver, TemplateError, parameter_values
from evalward_local.kept_objects import start_kept_objects
from evalward_local.listener import LOOPBACK, Listener, open_socket
from evalward_local.postgres import EmbeddedPostgres, Login, login_from_url
from evalward_local.resources import AwsClients, ResourceCreator, World
from evalward_local.schedule_clock import ScheduleClock
from evalward_local.stack_file import RunningFunction, StackFile, remove_stack_file, write_stack_file
from evalward_local.template import Template, read_template

STACK_NAME = "evalward"
DATABASE_NAME = "evalward"
# By name: importing it would load moto into this process as well.
_AWS_SERVICES = "evalward_local.aws_services"
_DATABASE_PARAMETERS = ("DatabaseAdminSecretArn", "DatabaseHost", "DatabasePort", "DatabaseName")
_HEALTH_PATIENCE_SECONDS = 30.0
_HEALTH_POLL_SECONDS = 0.05


class StackStartError(Exception):
    """The stack cannot start; the message says what to do."""


@dataclass(frozen=True)
class StackOptions:
    """How to run the stack.

    Attributes
    ----------
    template
        The SAM template.
    state_folder
        Receives stack.json and logs, and the data unless ephemeral.
    is_ephemeral
        Data in a temporary folder that goes with the stack.
    is_built
        Run what `sam build` made instead of the source tree.
    api_port
        0 takes any free one.
    environments
        Environments a function may have.
    parameters
        Values for the template's parameters.
    keeps_objects
        Objects in the state folder rather than in memory.
    database_url
        Superuser's URL of a server to use instead of the embedded one; its database is used as it is.
    """

    template: Path
    state_folder: Path
    is_ephemeral: bool = True
    is_built: bool = False
    api_port: int = 0
    environments: int = 8
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    keeps_objects: bool = False
    database_url: str = ""


class Stack:
    """Everything the template describes, alive until the `async with` block ends.

    Parameters
    ----------
    options
        How to run it.
    say
        Receives a line for each step.
    """

    def __init__(self, options: StackOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._children = Children()
        self._cleanup = contextlib.AsyncExitStack()
        self._logs = options.state_folder / "logs"
        self._secrets_file = options.state_folder / "secrets.json"
        self._runtime_folder: Path | None = None
        self._postgres: EmbeddedPostgres | None = None

    async def __aenter__(self) -> Self:
        """Prepare the folders; `start` does the rest."""
        self._cleanup.callback(self._children.end_all)
        self._logs.mkdir(parents=True, exist_ok=True)
        # In /tmp whatever TMPDIR says: a socket's path must be short, and another user must be able to reach it.
        self._work_folder = Path(tempfile.mkdtemp(prefix="evalward-", dir="/tmp"))
        self._work_folder.chmod(0o711)
        self._children.remove_at_end(self._work_folder)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop everything that was started, the last first."""
        await self._cleanup.aclose()
        await asyncio.to_thread(shutil.rmtree, self._work_folder, ignore_errors=True)

    async def start(self) -> StackFile:
        """Start everything and write stack.json.

        Returns
        -------
        StackFile
            What was written.

        Raises
        ------
        TemplateError
            When the template has something the stack cannot play.
        StackStartError
            When the API does not become healthy.
        Exception
            Whatever a part reports: PostgresError, KeptObjectsError, CustomResourceError, OSError.
        """
        control_socket = open_socket()
        front_socket = open_socket(self._options.api_port)
        clients = await asyncio.to_thread(self._start_aws_services)
        control_url = f"http://{LOOPBACK}:{control_socket.getsockname()[1]}"
        api_url = f"http://{LOOPBACK}:{front_socket.getsockname()[1]}"
        database = asyncio.ensure_future(asyncio.to_thread(self._start_database))
        self._cleanup.push_async_callback(self._stop_database, database)
        template = await asyncio.to_thread(read_template, self._options.template)
        # A thread cannot be cancelled: when the start is, the end has to wait for this one to know what to stop.
        superuser = await asyncio.shield(database)
        world = await asyncio.to_thread(self._create_resources, template, clients, superuser)

        variables = self._function_variables(clients, control_url)
        pools = {
            settings.logical_id: FunctionPool(
                settings, self._children, variables, self._logs / f"{settings.logical_id}.log"
            )
            for settings in world.functions
        }
        pools_by_name = {pool.settings.name: pool for pool in pools.values()}
        for pool in pools.values():
            self._cleanup.push_async_callback(pool.close)
        queue_urls = {
            resource.attributes["Arn"]: resource.ref
            for resource in world.created.values()
            if "QueueUrl" in resource.attributes
        }
        pollers = [
            EventSourcePoller(
                source, pools_by_name[source.function_name], clients.make("sqs"), queue_urls[source.queue_arn]
            )
            for source in world.event_sources
        ]
        clock = ScheduleClock(world.schedules, pools_by_name)
        watched = {source.queue_arn.rpartition(":")[2]: queue_urls[source.queue_arn] for source in world.event_sources}
        incoming = None
        if world.object_notifications:
            incoming = IncomingWatch(world.object_notifications, clients.make("s3"), clients.make("sqs"), queue_urls)
        ledger = WorkLedger(pools, pollers, watched, clients.sqs, superuser.url, incoming)
        desk = CustomResourceDesk(control_url, STACK_NAME)
        await self._listen(ControlApi(pools, clock, ledger).make_app(desk.route), control_socket)
        for resource in world.custom_resources:
            self._say(f"{resource.logical_id} ...")
            await desk.create(resource, pools_by_name[resource.function_name])
        await asyncio.to_thread(self._keep_secrets, world, clients)
        for poller in pollers:
            await self._run(poller.run())
        await self._run(clock.run())
        if incoming is not None:
            await self._run(incoming.run())
        await self._listen(HttpFront(world.routes, pools_by_name), front_socket)
        if world.routes:
            await _wait_until_healthy(api_url)
        stack = StackFile(
            api_url=api_url,
            control_url=control_url,
            admin_key=_secret_field(world, clients, "AdminKeySecret", "key"),
            database_url=_app_url(world, clients),
            superuser_url=superuser.url,
            pg_bin_dir="" if self._postgres is None else str(self._postgres.binaries),
            bucket=world.created.get("DatasetBucket", CreatedResource("")).ref,
            aws_endpoint_url=clients.endpoint_url,
            s3_endpoint_url=clients.s3_endpoint_url,
            region=REGION,
            pid=os.getpid(),
            functions=tuple(
                RunningFunction(id=settings.logical_id, name=settings.name, environments=settings.concurrency)
                for settings in world.functions
            ),
        )
        write_stack_file(self._options.state_folder, stack)
        self._cleanup.callback(remove_stack_file, self._options.state_folder)
        return stack

    async def _listen(self, app: Any, listening: Any) -> None:
        listener = Listener(app, listening)
        await listener.start()
        self._cleanup.callback(listener.close)

    async def _run(self, work: Any) -> None:
        await self._cleanup.enter_async_context(_background(work))

    def _start_aws_services(self) -> AwsClients:
        listening = open_socket()
        endpoint_url = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        with listening, (self._logs / "aws.log").open("ab") as log:
            process = self._children.start(
                [sys.executable, "-m", _AWS_SERVICES, str(listening.fileno())],
                environment=plain_environment(),
                output=log,
                pass_fds=(listening.fileno(),),
            )
        self._cleanup.callback(self._kill, process)
        if not self._options.keeps_objects:
            return AwsClients(endpoint_url)
        kept = start_kept_objects(self._options.state_folder / "objects", self._logs / "objects.log", self._children)
        self._cleanup.callback(kept.stop)
        return AwsClients(endpoint_url, kept.endpoint_url)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self._children.forget(process.pid)

    def _start_database(self) -> Login:
        if self._options.database_url:
            return login_from_url(self._options.database_url)
        data_parent = self._work_folder if self._options.is_ephemeral else self._options.state_folder
        postgres = EmbeddedPostgres(
            data_parent / "postgres",
            self._work_folder / "socket",
            self._children,
            durable=not self._options.is_ephemeral,
        )
        self._postgres = postgres
        return postgres.start(DATABASE_NAME)

    async def _stop_database(self, starting: asyncio.Future[Login]) -> None:
        await asyncio.wait([starting])
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.stop)

    def _create_resources(self, template: Template, clients: AwsClients, superuser: Login) -> World:
        given = dict(self._options.parameters)
        declared = set(template.parameters)
        if declared.issuperset(_DATABASE_PARAMETERS):
            secret = clients.secrets.create_secret(
                Name=f"{STACK_NAME}-database-admin",
                SecretString=json.dumps(
                    {
                        "host": superuser.host,
                        "port": superuser.port,
                        "dbname": superuser.dbname,
                        "username": superuser.username,
                        "password": superuser.password,
                    }
                ),
            )
            given = {
                "DatabaseAdminSecretArn": secret["ARN"],
                "DatabaseHost": superuser.host,
                "DatabasePort": str(superuser.port),
                "DatabaseName": superuser.dbname,
                **given,
            }
        resolver = Resolver(
            parameter_values(template.parameters, given),
            template.conditions,
            template.mappings,
            region=REGION,
            stack_name=STACK_NAME,
        )

        def make_function(
            logical_id: str, name: str, arn: str, properties: dict[str, Any], layer_ids: list[str]
        ) -> FunctionSettings:
            return self._make_function(template, logical_id, name, arn, properties, layer_ids)

        creator = ResourceCreator(template, resolver, clients, make_function, STACK_NAME, self._read_kept_secrets())
        return creator.create_all()

    def _make_function(
        self,
        template: Template,
        logical_id: str,
        name: str,
        arn: str,
        properties: dict[str, Any],
        layer_ids: list[str],
    ) -> FunctionSettings:
        if logical_id not in template.code_folders:
            raise TemplateError(f"{logical_id}: only functions with a CodeUri can be run")
        if self._options.is_built:
            if self._runtime_folder is None:
                self._runtime_folder = mount_runtime(self._work_folder / "runtime")
            build_folder = self._options.template.resolve().parent / ".aws-sam" / "build"
            code = locate_build(build_folder, logical_id, layer_ids, self._runtime_folder)
        else:
            code = locate_source(template.code_folders[logical_id])
        reserved = properties.get("ReservedConcurrentExecutions")
        variables = (properties.get("Environment") or {}).get("Variables") or {}
        return FunctionSettings(
            logical_id=logical_id,
            name=name,
            arn=arn,
            handler=properties["Handler"],
            timeout_seconds=float(properties.get("Timeout", 3)),
            memory_megabytes=int(properties.get("MemorySize", 128)),
            variables={key: str(value) for key, value in variables.items()},
            code=code,
            concurrency=min(self._options.environments, int(reserved)) if reserved else self._options.environments,
        )

    def _function_variables(self, clients: AwsClients, control_url: str) -> dict[str, str]:
        variables = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_ENDPOINT_URL": clients.endpoint_url,
            "AWS_ENDPOINT_URL_LAMBDA": control_url,
        }
        # A store that checks signatures refuses a session it never gave.
        if clients.s3_endpoint_url is None:
            return variables | {"AWS_SESSION_TOKEN": "test"}
        return variables | {"AWS_ENDPOINT_URL_S3": clients.s3_endpoint_url}

    def _read_kept_secrets(self) -> dict[str, str]:
        if self._options.is_ephemeral or not self._secrets_file.exists():
            return {}
        return json.loads(self._secrets_file.read_text())

    def _keep_secrets(self, world: World, clients: AwsClients) -> None:
        """Write the secrets down beside the database whose passwords and keys they are: moto forgets them."""
        if self._options.is_ephemeral:
            return
        values = {
            logical_id: clients.secrets.get_secret_value(SecretId=resource.ref)["SecretString"]
            for logical_id, resource in world.created.items()
            if ":secretsmanager:" in resource.ref
        }
        self._secrets_file.touch(mode=0o600)
        self._secrets_file.write_text(json.dumps(values))


@contextlib.asynccontextmanager
async def _background(work: Any) -> AsyncGenerator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _wait_until_healthy(api_url: str) -> None:
    give_up_at = time.monotonic() + _HEALTH_PATIENCE_SECONDS
    answer = "no answer"
    async with httpx.AsyncClient(trust_env=False, timeout=_HEALTH_PATIENCE_SECONDS) as client:
        while time.monotonic() < give_up_at:
            response = await client.get(f"{api_url}/healthz")
            if response.status_code == 200:
                return
            answer = f"{response.status_code} {response.text[:500]}"
            await asyncio.sleep(_HEALTH_POLL_SECONDS)
    raise StackStartError(f"GET /healthz does not answer 200: {answer}")


def _read_secret(world: World, clients: AwsClients, logical_id: str) -> dict[str, Any]:
    if logical_id not in world.created:
        return {}
    return json.loads(clients.secrets.get_secret_value(SecretId=world.created[logical_id].ref)["SecretString"])


def _secret_field(world: World, clients: AwsClients, logical_id: str, name: str) -> str:
    return str(_read_secret(world, clients, logical_id).get(name, ""))


def _app_url(world: World, clients: AwsClients) -> str:
    secret = _read_secret(world, clients, "AppSecret")
    if not secret:
        return ""
    return Login(secret["host"], int(secret["port"]), secret["dbname"], secret["username"], secret["password"]).url
