"""Panels of Grafana, by kind, with grafana-foundation-sdk's builders."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import (
    barchart,
    bargauge,
    common,
    dashboard,
    gauge,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as formats

from evalq.evalcore.views.metrics import Threshold
from evalq.workers.exporter.family import LEDGER, RECENT_LABEL
from grafana.layout import Cell
from grafana.queries import SERIES, of_ledger
from grafana.view import Unit, View

SOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The data source is a variable, so that the pages work where there are several Prometheus servers."""

COLOURS = {"good": "green", "doubtful": "orange", "bad": "red"}

_PLAIN = (Threshold(None, "good"),)

Builder = Any  # the builders share their methods, but no type that declares them


class Link(dashboard.DashboardLink):
    """A link in plain sight; the SDK would put it into a menu."""

    def __init__(self, title: str, url: str) -> None:
        super().__init__(title)
        self.type(models.DashboardLinkType.LINK).url(url)

    def build(self) -> models.DashboardLink:
        """The link."""
        built = super().build()
        built.placement = None  # type: ignore[assignment]  # the SDK's type has no way to say that it is left out
        return built


def panel(place: Cell, number: int) -> Builder:
    """The panel of a place. ``number``: its id on the page."""
    view = place.view
    if view is None:
        raise ValueError(f"row {place.title!r} is no panel")
    built = _KINDS[view.kind](view)
    built.id(number).title(view.title).description(view.description).datasource(SOURCE).unit(view.unit.name)
    built.grid_pos(models.GridPos(h=place.h, w=place.w, x=place.x, y=place.y)).no_value(view.none)
    if view.unit.digits is not None:
        built.decimals(view.unit.digits)
    if view.range:
        built.min(view.range[0]).max(view.range[1])
    built.mappings(_words(view))
    if view.link:
        linked = f"/d/{view.link}?${{__url_time_range}}&var-{LEDGER}=${{{LEDGER}}}"
        built.links([Link("More", linked)])
        if view.by_suite:
            built.data_links([Link("This suite", f"{linked}&var-suite=${{__field.labels.suite}}")])
    for index, query in enumerate(view.queries):
        expr = query.expr if query.all_ledgers else of_ledger(query.expr)
        built.with_target(_target(view, index, expr, query.legend))
    return built


def _target(view: View, index: int, expr: str, legend: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().datasource(SOURCE).expr(expr).ref_id(chr(ord("A") + index))
    if view.kind in ("table", "recent"):
        return target.instant().format(formats.PromQueryFormat.TABLE)
    target = target.range() if view.kind == "lines" else target.instant()
    if view.exemplars:
        target = target.exemplar(True)
    target = target.format(formats.PromQueryFormat.TIME_SERIES)
    return target.legend_format(legend) if legend else target


def _words(view: View) -> list[models.ValueMapping]:
    """What numbers are called, and what stands where there is none."""
    nothing = models.DashboardSpecialValueMapOptions(
        models.SpecialValueMatch.NULL_AND_NAN, models.ValueMappingResult(text=view.none, color="text", index=0)
    )
    named = {
        f"{number:g}": models.ValueMappingResult(text=text, index=index)
        for index, (number, text) in enumerate(view.words, 1)
    }
    return [models.SpecialValueMap(options=nothing), *([models.ValueMap(options=named)] if named else [])]


def _steps(thresholds: tuple[Threshold, ...]) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=each.value, color=COLOURS[each.state]) for each in thresholds]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _coloured(built: Builder, view: View) -> Builder:
    """Colour by threshold where there are some, else one neutral colour."""
    if view.thresholds:
        mode = dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)
        return built.thresholds(_steps(view.thresholds)).color_scheme(mode)
    fixed = dashboard.FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color("blue")
    return built.thresholds(_steps(_PLAIN)).color_scheme(fixed)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["last"]).values(False)


def _stat(view: View) -> Builder:
    shown = shapes.BigValueTextMode.VALUE_AND_NAME if any(q.legend for q in view.queries) else None
    built = stat.Panel().reduce_options(_last()).graph_mode(shapes.BigValueGraphMode.NONE)
    for query in view.queries:
        own = _properties(query.unit) if query.unit else []
        if query.thresholds:
            steps = [{"value": each.value, "color": COLOURS[each.state]} for each in query.thresholds]
            own.append(models.DynamicConfigValue(id_val="thresholds", value={"mode": "absolute", "steps": steps}))
        if own:
            built.override_by_name(query.legend, own)
    built.text_mode(shown or shapes.BigValueTextMode.VALUE).color_mode(shapes.BigValueColorMode.VALUE)
    return _coloured(built, view)


def _status(view: View) -> Builder:
    return _stat(view).color_mode(shapes.BigValueColorMode.BACKGROUND_SOLID)


def _gauge(view: View) -> Builder:
    return _coloured(gauge.Panel().reduce_options(_last()).show_threshold_markers(True), view)


def _bars(view: View) -> Builder:
    built = bargauge.Panel().reduce_options(_last()).orientation(shapes.VizOrientation.HORIZONTAL)
    built.display_mode(shapes.BarGaugeDisplayMode.BASIC).value_mode(shapes.BarGaugeValueMode.TEXT)
    return _coloured(built.name_placement(shapes.BarGaugeNamePlacement.LEFT), view)


def _recent(view: View) -> Builder:
    """One group of bars for each of the last runs, the newest on the right, a colour for each series."""
    built = barchart.Panel().legend(_legend()).show_value(shapes.VisibilityMode.AUTO)
    built.axis_label("runs ago, 1 is the newest").fill_opacity(80)
    built.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
    built.thresholds(_steps(view.thresholds or _PLAIN))
    steps = (
        ("convertFieldType", _position_as("number")),
        ("sortBy", {"sort": [{"field": RECENT_LABEL, "desc": True}]}),
        ("convertFieldType", _position_as("string")),  # bars need names below them
        ("groupingToMatrix", _matrix(SERIES, RECENT_LABEL)),
    )
    for name, options in steps:
        built.with_transformation(models.DataTransformerConfig(id_val=name, options=options))
    return built


def _position_as(kind: str) -> dict[str, object]:
    return {"conversions": [{"targetField": RECENT_LABEL, "destinationType": kind}]}


def _matrix(columns: str, rows: str) -> dict[str, object]:
    """A column for each value of a label; nothing, and not an empty text, where there is no value."""
    return {"columnField": columns, "rowField": rows, "valueField": "Value", "emptyValue": "null"}


def _lines(view: View) -> Builder:
    built = timeseries.Panel().legend(_legend()).line_width(2).fill_opacity(30 if view.stacked else 5)
    built.tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    built.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC)).axis_soft_min(0)
    if view.stacked:
        built.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    if view.thresholds:
        built.thresholds(_steps(view.thresholds))
        built.thresholds_style(common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED))
    return built


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True).display_mode(shapes.LegendDisplayMode.LIST)
    return legend.placement(shapes.LegendPlacement.BOTTOM)


def _table(view: View) -> Builder:
    """A row for each label set, a column for each query."""
    worst_first = common.TableSortByFieldState().display_name(view.queries[0].legend).desc(not _rising(view.thresholds))
    built = table.Panel().sort_by([worst_first])
    if len(view.queries) > 1:
        built.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    single = len(view.queries) == 1
    names = {"Value" if single else f"Value #{chr(ord('A') + i)}": q.legend for i, q in enumerate(view.queries)}
    organised = {"excludeByName": {"Time": True}, "renameByName": names}
    built.with_transformation(models.DataTransformerConfig(id_val="organize", options=organised))
    for query in view.queries:
        if query.unit:
            built.override_by_name(query.legend, _properties(query.unit))
    if view.thresholds:
        built.thresholds(_steps(view.thresholds))
        cell = {"type": shapes.TableCellDisplayMode.COLOR_TEXT.value}
        for query in view.queries:
            built.override_by_name(query.legend, [models.DynamicConfigValue(id_val="custom.cellOptions", value=cell)])
    return built


def _rising(thresholds: tuple[Threshold, ...]) -> bool:
    """Whether low numbers are the ones to look at."""
    return bool(thresholds) and thresholds[0].state == "bad"


def _properties(unit: Unit) -> list[models.DynamicConfigValue]:
    own = [models.DynamicConfigValue(id_val="unit", value=unit.name)]
    return own + ([models.DynamicConfigValue(id_val="decimals", value=unit.digits)] if unit.digits is not None else [])


_KINDS = {
    "stat": _stat,
    "status": _status,
    "gauge": _gauge,
    "bars": _bars,
    "recent": _recent,
    "lines": _lines,
    "table": _table,
}
