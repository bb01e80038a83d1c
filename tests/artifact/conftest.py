from collections.abc import Generator
from pathlib import Path

import pytest
from evalward_local.code_locations import locate_build, mount_runtime
from evalward_local.functions import CodeLocation
from evalward_local.running_stack import PROJECT_FOLDER, running_stack
from evalward_local.stack_file import StackFile
from evalward_local.template import Template, read_template

BUILD_FOLDER = PROJECT_FOLDER / ".aws-sam" / "build"


@pytest.fixture(scope="session")
def template() -> Template:
    return read_template(PROJECT_FOLDER / "template.yaml")


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    if not (BUILD_FOLDER / "template.yaml").exists():
        pytest.skip("nothing is built: run `make build`")


@pytest.fixture(scope="session")
def locations(template: Template, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CodeLocation]:
    runtime = mount_runtime(tmp_path_factory.mktemp("runtime") / "packages")
    return {
        function_id: locate_build(BUILD_FOLDER, function_id, template.layers_of(function_id), runtime)
        for function_id in template.code_folders
    }


@pytest.fixture(scope="session")
def built_stack(tmp_path_factory: pytest.TempPathFactory, built: None) -> Generator[StackFile]:
    state: Path = tmp_path_factory.mktemp("built-stack")
    with running_stack(state, is_built=True, environments=2) as stack:
        yield stack
