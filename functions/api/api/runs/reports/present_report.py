"""Answer with a report in the form that was asked for."""

from coordination.http.operation import Answer

from api.runs.models import Report
from api.runs.reports.html_page import CONTENT_SECURITY_POLICY, render_html
from api.runs.reports.junit_xml import render_junit
from api.runs.reports.markdown import render_markdown
from api.runs.reports.media_types import MEDIA_TYPES, ReportFormat

# The same address answers in several forms: a cache must keep them apart.
_VARY = {"vary": "accept"}


def present_report(report: Report, wanted: ReportFormat) -> Answer:
    """Make the answer. Pure."""
    media_type = MEDIA_TYPES[wanted]
    match wanted:
        case "json":
            return Answer(200, report, _VARY)
        case "html":
            headers = _VARY | {
                "content-security-policy": CONTENT_SECURITY_POLICY,
                "x-content-type-options": "nosniff",
                "referrer-policy": "no-referrer",
            }
            return Answer(200, render_html(report), headers, f"{media_type}; charset=utf-8")
        case "markdown":
            return Answer(200, render_markdown(report), _VARY, f"{media_type}; charset=utf-8")
        case "junit":
            return Answer(200, render_junit(report), _VARY, media_type)
