"""The params of the vs evaluation: golden cases, the registry of agents and levels, thresholds and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import load_mapping
from evalq.evalcore.errors import ConfigError

Op = Literal[">=", ">", "<=", "<", "==", "!="]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Unit = Annotated[float, Field(ge=0, le=1)]
AtLeastOne = Annotated[int, Field(ge=1)]


class Level(Params):
    """A level of verbalized sampling: its required phases, and its validators."""

    name: str
    phases: tuple[int, ...] = Field(min_length=1)
    t_scores: bool
    self_critique: bool

    @property
    def key(self) -> str:
        """The level's key in the summary, such as full_vs; its group in a golden set is that and ``_tests``."""
        return f"{self.name.lower()}_vs"


LEVELS = (
    Level(name="Full", phases=(0, 1, 2, 3, 4, 5), t_scores=True, self_critique=True),
    Level(name="Enhanced", phases=(0, 1, 2, 4), t_scores=True, self_critique=False),
    # The seed's dashboard shows T-scores on Light as N/A.
    Level(name="Light", phases=(0, 1, 4), t_scores=False, self_critique=False),
)

_LEVEL_NAMES = {level.name.lower(): level.name for level in LEVELS}


class Agent(Params):
    """An agent under evaluation: its ``id`` as golden sets name it, and its ``level``."""

    id: str
    level: str


@cache
def default_agents() -> tuple[Agent, ...]:
    """The twenty agents of the registry that comes with evalq."""
    return tuple(Agent(**entry) for entry in load_agents(Path(__file__).with_name("agents.yaml")))


def load_agents(path: str | Path) -> list[dict[str, str]]:
    """The agents of a registry file as plain params. Raises ConfigError with file and key.

    ``agents`` maps an id to a level, or, as the agents' own registry does, to an object with ``vs_level`` and perhaps
    ``legacy_id``. Other keys, and agents without a ``vs_level``, are ignored.
    """
    data = load_mapping(path)
    agents: Mapping[Any, Any] | Any = data.get("agents")
    if not isinstance(agents, dict) or not agents:
        raise ConfigError(f"{path}: agents: must be a mapping of agent ids to levels")
    if all(isinstance(entry, dict) for entry in agents.values()):
        return _agents_of_registry(path, agents)
    unknown = sorted(set(data) - {"agents"})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]}: unknown key (known here: agents)")
    for agent, level in agents.items():
        # To YAML an id such as 02 is a number, and a level such as `on` a boolean.
        if not isinstance(agent, str) or not isinstance(level, str):
            raise ConfigError(f"{path}: agents.{agent}: both the id and the level must be text")
    return [{"id": agent, "level": level} for agent, level in agents.items()]


def _agents_of_registry(path: str | Path, agents: Mapping[Any, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The agents of a registry that describes each, by their ids and legacy ids."""
    levels: dict[str, str] = {}
    for agent, entry in agents.items():
        level, legacy = entry.get("vs_level"), entry.get("legacy_id")
        if level is None:
            continue
        if not isinstance(agent, str) or not isinstance(level, str):
            raise ConfigError(f"{path}: agents.{agent}.vs_level: both the id and the level must be text")
        if not isinstance(legacy, str | int | None) or isinstance(legacy, bool):
            raise ConfigError(f"{path}: agents.{agent}.legacy_id: must be text such as '02', or null")
        names = [agent]
        if legacy is not None:
            # Golden sets still name "A2-theoretical-framework-architect" "02-theoretical-framework-architect".
            number = f"{legacy:02d}" if isinstance(legacy, int) else legacy
            names.append("-".join(filter(None, (number, agent.partition("-")[2]))))
        for name in names:
            if levels.setdefault(name, _LEVEL_NAMES.get(level.lower(), level)) != _LEVEL_NAMES.get(
                level.lower(), level
            ):
                raise ConfigError(f"{path}: agents.{agent}: {name} is named twice, with different levels")
    if not levels:
        raise ConfigError(f"{path}: agents: none has a vs_level")
    return [{"id": agent, "level": level} for agent, level in levels.items()]


class Lookup(Params):
    """Where to find an expectation's key in an output: dotted paths, of which the first that exists counts.

    ``take``: its value, the length of a list, or whether any of the paths holds something (absent is empty).
    In a path the part ``{key}`` stands for the expectation's key.
    """

    key: str
    paths: tuple[str, ...] = Field(min_length=1)
    take: Literal["value", "length", "non_empty"] = "value"


LOOKUPS = (
    Lookup(key="modal_count", paths=("vs_metadata.modal_identified",), take="length"),
    Lookup(key="critique_count", paths=("content.main_output.critiques",), take="length"),
    Lookup(key="has_rebuttals", paths=("content.main_output.rebuttals",), take="non_empty"),
    Lookup(key="has_self_critique", paths=("self_critique",), take="non_empty"),
    Lookup(
        key="has_alternatives",
        paths=("self_critique.alternative_perspectives", "content.main_output.alternative_explanations"),
        take="non_empty",
    ),
    Lookup(key="refined_questions", paths=("content.main_output.refined_questions",)),
    Lookup(key="pico_elements", paths=("content.main_output.pico_elements",)),
    Lookup(key="code_generated", paths=("content.main_output.code_generated",)),
    Lookup(key="modal_awareness", paths=("content.main_output.modal_awareness",)),
)


class Expectation(Params):
    """One further key of a case's ``expected``: the looked-up value must stand in relation ``op`` to ``want``."""

    key: str
    op: Op = "=="
    want: bool | int | Finite | str

    @model_validator(mode="after")
    def _only_numbers_are_ordered(self) -> Self:
        # A text may contain anything, even an operator, so it can only be equal.
        if self.op != "==" and isinstance(self.want, bool | str):
            raise ValueError(f"{self.op} needs a number")
        return self


class GoldenCase(Params):
    """A test case of the golden set. ``phases`` overrides its level's; it has only the digest of its input."""

    id: str = Field(min_length=1)
    agent: str
    input_sha256: str = ""
    phases: tuple[int, ...] | None = Field(default=None, min_length=1)
    t_score_range: tuple[Finite, Finite] | None = None
    expected: tuple[Expectation, ...] = ()


class TScoreRule(Params):
    """Scores above ``modal_above`` are modal; a diverse set has one below ``diverse_below``."""

    # SPEC, section 1, as are the counts below, and the evenness and `most_common` of CollapseRule; its other values are
    # evalq's.
    modal_above: Finite = 0.8
    diverse_below: Finite = 0.6


class CritiqueRule(Params):
    """How many of each a self-critique needs, and the mean of its four checks at which it passes."""

    strengths: int = 2
    weaknesses: int = 2
    improvement_suggestions: int = 1
    # The seed's code counts a named weakness as an alternative.
    weaknesses_for_alternatives: int = 1
    pass_at: Unit = 0.75


class ProvenanceRule(Params):
    """How many sources and reasoning steps an output needs."""

    sources: int = 1
    reasoning_trace: int = 1


class CollapseRule(Params):
    """When repeated runs count as collapsed.

    ``detected_below`` bounds the specified evenness, ``collapse_share`` the mode's share that the verdict is about.
    The fuzzy count merges options at least ``fuzzy_similarity`` alike, and is left out above ``fuzzy_most`` options.
    """

    detected_below: Unit = 0.3
    collapse_share: Share = 0.7
    most_common: AtLeastOne = 3
    fuzzy_similarity: Unit = 0.9
    fuzzy_most: int = 400


class VsParams(Params):
    """Params of vs: `request` fills ``cases`` from the golden set and ``agents`` from a registry file.

    ``agent`` and ``level`` select cases (empty: all); records of others are skipped, not errors.
    """

    cases: tuple[GoldenCase, ...] = ()
    agents: tuple[Agent, ...] = Field(default_factory=default_agents)
    agent: str = ""
    level: str = ""
    levels: tuple[Level, ...] = LEVELS
    # As the seed names them in its own report: "Phase 3 (Low-Typicality Selection) not executed".
    phase_names: tuple[str, ...] = (
        "Context Collection",
        "Modal Response Identification",
        "Long-Tail Sampling",
        "Low-Typicality Selection",
        "Execution",
        "Originality Verification",
    )
    t_scores: TScoreRule = TScoreRule()
    self_critique: CritiqueRule = CritiqueRule()
    provenance: ProvenanceRule = ProvenanceRule()
    lookups: tuple[Lookup, ...] = LOOKUPS
    # SPEC, section 1: first the agent's own output, then the top level, which is the contract's.
    unlisted: tuple[str, ...] = ("content.main_output.{key}", "{key}")
    min_t_score_spread: Unit = 0.3
    collapse: CollapseRule = CollapseRule()

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        levels = {level.name for level in self.levels}
        agents = {agent.id for agent in self.agents}
        faults = [f"agents: {a.id} has the unknown level {a.level!r}" for a in self.agents if a.level not in levels]
        faults += [
            f"cases: {c.id} names the agent {c.agent!r}, not in agents" for c in self.cases if c.agent not in agents
        ]
        for kind, ids in (("levels", [v.name for v in self.levels]), ("agents", [a.id for a in self.agents]),
                          ("cases", [c.id for c in self.cases])):  # fmt: skip
            faults += [f"{kind}: {name} occurs twice" for name, count in sorted(Counter(ids).items()) if count > 1]
        if self.agent and self.agent not in agents:
            faults.append(f"agent: {self.agent!r} is not in agents")
        if self.level and self.level not in levels:
            faults.append(f"level: {self.level!r} is none of {', '.join(sorted(levels))}")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def selected(self) -> tuple[GoldenCase, ...]:
        """The cases of ``agent`` and ``level``, in the golden set's order."""
        level_of = {agent.id: agent.level for agent in self.agents}
        return tuple(
            case for case in self.cases if self.agent in ("", case.agent) and self.level in ("", level_of[case.agent])
        )
