"""A study or a run as one self-contained HTML page, and tables for papers."""

from a2tgpo.report.study_report import write_report
from a2tgpo.report.viewer import write_viewer

__all__ = ["write_report", "write_viewer"]
