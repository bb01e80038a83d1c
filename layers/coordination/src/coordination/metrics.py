"""Figures for CloudWatch, as log lines in its embedded metric format: nothing is called, nothing can fail."""

from collections.abc import Mapping

from aws_lambda_powertools.metrics import MetricUnit, single_metric

from coordination.settings import Settings

NAMESPACE = "evalward"


def emit_metrics(settings: Settings, figures: Mapping[str, tuple[float, MetricUnit]]) -> None:
    """Write figures of this deployment.

    Parameters
    ----------
    settings
        Name the deployment, the only dimension: a figure per project would cost what a project costs.
    figures
        Name (docs/observability.md lists them) to value and unit.
    """
    for name, (value, unit) in figures.items():
        with single_metric(name=name, unit=unit, value=value, namespace=NAMESPACE) as metric:
            metric.add_dimension("deployment", settings.metrics.deployment)
