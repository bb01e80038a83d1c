"""Read a SAM template and expand it to plain CloudFormation."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from evalward_local.account import REGION
from evalward_local.intrinsics import TemplateError

# Where SAM has the folder with the code, by resource type.
_CODE_PROPERTIES = {"AWS::Serverless::Function": "CodeUri", "AWS::Serverless::LayerVersion": "ContentUri"}
_SCHEDULE_EVENTS = ("Schedule", "ScheduleV2")


@dataclass(frozen=True)
class Template:
    """A template, expanded: only plain CloudFormation resource types are left.

    Attributes
    ----------
    resources
        Logical id to the resource as CloudFormation writes it, intrinsic functions unresolved.
    parameters, conditions, mappings
        The sections of the same name.
    code_folders
        Logical id of a function to the absolute folder of its source.
    layer_folders
        Logical id of a layer, as the template has it, to the absolute folder of its source, in the template's order.
    layer_ids
        Logical id of an expanded layer version to the id it has in the template (SAM appends a hash).
    event_names
        Logical id of an expanded schedule to the name of the event in its function.
    """

    resources: dict[str, dict[str, Any]]
    parameters: dict[str, dict[str, Any]]
    conditions: dict[str, Any]
    mappings: dict[str, Any]
    code_folders: dict[str, Path]
    layer_folders: dict[str, Path]
    layer_ids: dict[str, str]
    event_names: dict[str, str]

    def layers_of(self, function_id: str) -> list[str]:
        """Return the ids, as the template has them, of the layers a function names in this template, in its order."""
        layers = self.resources[function_id]["Properties"].get("Layers") or []
        return [self.layer_ids[layer["Ref"]] for layer in layers if layer.get("Ref") in self.layer_ids]


def read_template(path: Path) -> Template:
    """Read and expand a SAM template.

    Parameters
    ----------
    path
        The template file; relative code folders start from its folder.

    Returns
    -------
    Template
        The expanded template.

    Raises
    ------
    TemplateError
        When the file is no template or SAM refuses it; the message carries SAM's reasons.
    """
    from samtranslator.yaml_helper import yaml_parse

    source: Any = yaml_parse(path.read_text())
    if not isinstance(source, dict) or "Resources" not in source:
        raise TemplateError(f"{path}: no Resources section")
    document = cast("dict[str, Any]", source)
    code_folders: dict[str, Path] = {}
    event_names: dict[str, str] = {}
    layers: list[str] = []
    shared_folder = ((document.get("Globals") or {}).get("Function") or {}).pop("CodeUri", None)
    for logical_id, resource in document["Resources"].items():
        properties = resource.setdefault("Properties", {})
        if code_property := _CODE_PROPERTIES.get(resource["Type"]):
            folder = properties.get(code_property, shared_folder)
            if not isinstance(folder, str):
                raise TemplateError(f"{logical_id}: {code_property} names no folder")
            code_folders[logical_id] = (path.parent / folder).resolve()
            # The translator accepts uploaded code only; which object it would be does not matter here.
            properties[code_property] = f"s3://local/{logical_id}"
        if resource["Type"] == "AWS::Serverless::LayerVersion":
            layers.append(logical_id)
        for name, event in (properties.get("Events") or {}).items():
            if event["Type"] in _SCHEDULE_EVENTS:
                event_names[f"{logical_id}{name}"] = name
    expanded = _expand(document, path)
    resources: dict[str, dict[str, Any]] = expanded["Resources"]
    return Template(
        resources=resources,
        parameters=expanded.get("Parameters") or {},
        conditions=expanded.get("Conditions") or {},
        mappings=expanded.get("Mappings") or {},
        code_folders={key: folder for key, folder in code_folders.items() if key not in layers},
        layer_folders={layer_id: code_folders[layer_id] for layer_id in layers},
        layer_ids={
            expanded_id: layer_id
            for expanded_id, resource in resources.items()
            if resource["Type"] == "AWS::Lambda::LayerVersion"
            for layer_id in layers
            if expanded_id.startswith(layer_id)
        },
        event_names=event_names,
    )


def _expand(document: dict[str, Any], path: Path) -> dict[str, Any]:
    # Half a second to import: paid in a thread while the database starts, and not at all by the other commands.
    import boto3
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    # The translator asks the environment, not its session, for the region.
    os.environ.setdefault("AWS_DEFAULT_REGION", REGION)
    translator = Translator({}, Parser(), boto_session=boto3.Session(region_name=REGION))
    try:
        expanded: dict[str, Any] = translator.translate(document, {})
    except InvalidDocumentException as error:
        reasons = "; ".join(str(cause.message) for cause in error.causes)
        raise TemplateError(f"{path}: {reasons}") from error
    # To nobody: it complains at the end of the program otherwise.
    translator.metrics.publish()
    return expanded
