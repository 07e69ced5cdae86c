"""The settings schema: every setting with its type and default."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from travois.context.layers import ContextLayers, IdlePolicy, NotesMode
from travois.core.models import Effort
from travois.core.spending import LimitScope
from travois.extensions.entry_points import Package
from travois.memory.memory import MemoryConsent
from travois.permissions.decide import MODE_ALIASES, PERMISSION_MODES, PermissionMode
from travois.permissions.rules import PermissionRule
from travois.sandbox.tool_chains import ToolChainName

# What parts of settings have in common.


Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Quantity = Annotated[float, msgspec.Meta(ge=0)]


class SettingsGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A group of settings, with the camelCase keys that other agents use."""


# Settings about what may happen: permissions, and the sandbox around commands.


ModeName = Literal[
    "default",
    "plan",
    "accept-edits",
    "auto",
    "dont-ask",
    "bypass",
    "acceptEdits",
    "dontAsk",
    "bypassPermissions",
    "manual",
]


class PermissionSettings(SettingsGroup, frozen=True):
    """Permission rules and the permission mode."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: ModeName = "default"
    additional_directories: tuple[str, ...] = ()
    disable_bypass_permissions_mode: Literal["", "disable"] = ""
    disable_auto_mode: Literal["", "disable"] = ""
    block_reads_outside_working_directories: bool = False
    block_writes_outside_working_directories: bool = False
    """Deny access outside these folders without asking, whatever allows it."""
    deny_instead_of_prompting: bool = False
    """Deny what would be asked about, in every mode."""
    examples: tuple[str, ...] = ()
    """`RULE matches TEXT` or `RULE does not match TEXT`, checked when the file is loaded."""

    @property
    def mode(self) -> PermissionMode:
        """The mode by our own name, whichever name was used."""
        for mode in PERMISSION_MODES:
            if mode == self.default_mode:
                return mode
        return MODE_ALIASES[self.default_mode]


class SandboxNetworkSettings(SettingsGroup, frozen=True):
    """Network access of commands in the sandbox."""

    mode: Literal["", "off", "listed", "on"] = ""
    """Empty means that it depends on the command."""
    allowed_domains: tuple[str, ...] = ()
    denied_domains: tuple[str, ...] = ()


class SandboxFilesystemSettings(SettingsGroup, frozen=True):
    """Files that commands in the sandbox may read and write besides the workspace."""

    allow_write: tuple[str, ...] = ()
    deny_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    allow_read: tuple[str, ...] = ()
    """Exceptions that may be read: in the home, which is hidden, and inside `deny_read`."""


class SandboxSettings(SettingsGroup, frozen=True):
    """The sandbox around commands."""

    enabled: bool = True
    required: bool = False
    """Refuse to start where there can be no sandbox."""
    look_first: bool = True
    """Run an unknown command first where it can change nothing."""
    allow_unsandboxed_commands: bool = True
    """Let the model ask for a command to run outside the sandbox."""
    auto_allow_bash_if_sandboxed: bool = False
    """Run sandboxed commands without asking, as in mode auto."""
    excluded_commands: tuple[str, ...] = ()
    hooks: bool = False
    """Run hooks in the sandbox unless they say otherwise."""
    mcp_servers: bool = False
    """Run MCP servers that are programs in the sandbox unless their entry says otherwise."""
    hidden_tool_chains: tuple[ToolChainName, ...] = ()
    """Families of programs whose files in the home are hidden like all others there."""
    network: SandboxNetworkSettings = SandboxNetworkSettings()
    filesystem: SandboxFilesystemSettings = SandboxFilesystemSettings()


# Settings about how models are used, and what they leave behind.


class ModelSettings(SettingsGroup, frozen=True):
    """Settings for one model."""

    effort_level: Effort = ""
    max_effort_level: Effort = ""
    auto_compact_window: Count = 0


class PricingSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Model prices that differ from the catalogue."""

    multiplier: Quantity = 1.0
    """For every price that is not given below."""
    overrides: dict[str, dict[str, Quantity]] = {}
    """Dollars per million, by id: `input`, `output`, `cacheRead`, `cacheWrite`."""


class AttributionSettings(SettingsGroup, frozen=True):
    """Text added to commits and pull requests; empty for none."""

    commit: str = ""
    pr: str = ""


class WorktreeSettings(SettingsGroup, frozen=True):
    """Contents of an agent's git worktree besides the files of its commit."""

    symlink_directories: tuple[str, ...] = ()
    """Folders of the repository that it shares, such as `node_modules`."""


TrustStatus = Literal["trusted", "changed", "unknown", "refused"]
"""The trust in what a folder asks for; only `trusted` lets any of it happen."""
Json = dict[str, object]


class TimeoutSettings(SettingsGroup, frozen=True):
    """Timeouts for providers, in seconds."""

    connect: Seconds = 10.0
    first_byte: Seconds = 90.0
    idle: Seconds = 90.0
    """Between two events of one reply."""
    local: Seconds = 600.0
    """The default of both for a server on this machine, which may think for minutes without a word;
    a value of `idle` that you set holds there, too."""


class RetrySettings(SettingsGroup, frozen=True):
    """The number of retries, and the longest pause before one."""

    attempts: Count = 10
    max_wait: Seconds = 60.0


class ContextSettings(SettingsGroup, frozen=True):
    """Switches and limits of the context layers; numbers are tokens."""

    offload: bool = True
    """Store tool results that are too large, and show a part of them."""
    clear: bool = True
    """Clear old results when the cache is gone anyway or room is needed."""
    compact: bool = True
    """Allow compaction at all, even on request."""
    auto_compact: bool = True
    """Compact automatically."""
    draft: bool = True
    """Let the model add its own text to the ledger."""
    notes: NotesMode = ContextLayers().notes
    """Let the model keep notes while it works; `auto` if they cost less than summaries."""
    notes_template: str = ""
    notes_prompt: str = ""
    """Files that take the place of our sections and our request for them."""
    restore: bool = True
    """Show recently used files again after a compaction."""
    signed_summary: bool = False
    """Add the provider's own summary, which keeps its thinking, to ours."""
    cache_ttl: Literal["", "5m", "1h"] = ""
    """A fixed prompt cache lifetime; empty to choose it from the pauses."""
    cache_lifetime: bool = True
    """Choose the prompt cache lifetime from the pauses in the session."""
    keep_warm: Count = 0
    """The number of times that the prompt cache is renewed during a pause; each time costs."""
    threshold: Count = 0
    """The size at which compaction starts, if earlier than the window's own; 0 for that."""
    threshold_percent: Percent = 0.0
    """The same as a share of the window less the room for a reply; the earlier of the two holds."""
    hard_limit: Count = 0
    """The size beyond which nothing is sent; 0 for 3,000 tokens before the end of the window."""
    window: Count = 0
    """The most of the model's window that is to be used; zero means all of it."""
    result_tokens: Count = ContextLayers().result
    """The most of one tool result that is shown, as far as there is free room; 0 for no cap."""
    tool_tokens: dict[str, Count] = msgspec.field(default_factory=dict[str, int])
    """The same for single tools, by name; `mcp__*` is for all tools of servers."""
    reply_tokens: Count = ContextLayers().reply
    """The most of all results of one reply together."""
    tail_tokens: Count = ContextLayers().tail
    ledger_tokens: Count = ContextLayers().ledger
    idle: IdlePolicy = ContextLayers().idle
    """The pause that clears old results: `normal`, `cheap` (as soon as the cache is gone),
    `off`."""
    idle_minutes: Count = round(ContextLayers().idle_seconds / 60)
    """The pause after which `normal` clears them, however few tokens are in use."""
    cold_tokens: Count = ContextLayers().cold
    """With `cheap`: a conversation beyond this is compacted when the cache is gone."""
    keep_results: Count = ContextLayers().kept
    clear_at_least: Count = ContextLayers().cleared
    """After a pause: the number of newest results that stay, and the fewest tokens worth
    clearing."""
    clear_pressure: bool = ContextLayers().pressure
    """Clear old results when the window is nearly full, where that pays off."""
    pressure_results: Count = ContextLayers().pressed_kept
    pressure_tokens: Count = ContextLayers().pressed_tokens
    pressure_at_least: Count = ContextLayers().pressed_cleared
    """Under pressure: the results and tokens that stay, and the fewest tokens worth clearing."""
    clear_server: bool = ContextLayers().server
    """Let the provider clear for us where it can, which keeps thinking valid."""
    clear_inputs: bool = ContextLayers().inputs
    """Also clear long arguments of old calls that wrote files."""
    clear_thinking: bool = ContextLayers().thinking
    """Keep only the last turn's thinking after an hour's pause."""
    collapse: bool = ContextLayers().collapse
    """Fold old calls into one line each, if that is enough to avoid a compaction."""
    snip: bool = ContextLayers().snip
    """Let folding drop the oldest of these lines."""

    @property
    def layers(self) -> ContextLayers:
        """The same values as the engine's context layers."""
        same = {name: getattr(self, name) for name in SHARED_LAYER_FIELDS}
        others = {ours: getattr(self, name) for name, ours in RENAMED_LAYER_FIELDS.items()}
        return ContextLayers(
            **same,
            **others,
            compact=self.compact and self.auto_compact,
            shorten=self.compact,
            lifetime=self.cache_lifetime and not self.cache_ttl,
            idle_seconds=60.0 * self.idle_minutes,
        )


SHARED_LAYER_FIELDS = {*ContextLayers.__struct_fields__} & {*ContextSettings.__struct_fields__} - {
    "compact"
}
RENAMED_LAYER_FIELDS = {
    "signed_summary": "signed",
    "threshold_percent": "percent",
    "result_tokens": "result",
    "tool_tokens": "caps",
    "reply_tokens": "reply",
    "tail_tokens": "tail",
    "ledger_tokens": "ledger",
    "cold_tokens": "cold",
    "keep_results": "kept",
    "clear_at_least": "cleared",
    "clear_pressure": "pressure",
    "clear_server": "server",
    "pressure_results": "pressed_kept",
    "pressure_tokens": "pressed_tokens",
    "pressure_at_least": "pressed_cleared",
    "clear_inputs": "inputs",
    "clear_thinking": "thinking",
}
"""Settings that the engine knows by another name."""


class MailSettings(SettingsGroup, frozen=True):
    """Mail between sessions."""

    address: str = ""
    """Its name in a team, as in `crew:ada`; empty if it is in none."""
    listen: bool = False
    """Wake the session when mail arrives; always on in a team."""


class MemoryConsentSettings(SettingsGroup, frozen=True):
    """Consent to new memories, by scope."""

    project: MemoryConsent = "auto"
    user: MemoryConsent = "auto"
    team: MemoryConsent = "ask"


class DreamingSettings(SettingsGroup, frozen=True):
    """Consolidation of memories between sessions."""

    enabled: bool = True
    hours: Quantity = 24.0
    """Since the last time."""
    sessions: Count = 5
    """The number of active sessions since then."""


class MemorySettings(SettingsGroup, frozen=True):
    """Memory across sessions."""

    enabled: bool = True
    extract: Literal["model", "rules", "off"] = "model"
    """The extraction of memories: by the model, by rules, or off."""
    consent: MemoryConsentSettings = MemoryConsentSettings()
    recall: bool = True
    """Show memories with the prompts that they fit."""
    choose: bool = True
    """Let a cheaper model choose among many that fit."""
    dream: DreamingSettings = DreamingSettings()
    directory: str = ""
    """The folder of the project's memories; empty for the usual one."""


class SearchSettings(SettingsGroup, frozen=True):
    """The scope of `travois search`."""

    agents: bool = True
    """Include sessions that other agents recorded on this machine."""


class WebSearchSettings(SettingsGroup, frozen=True):
    """Web search: off, by the model's provider, or by an endpoint of the user's."""

    use: Literal["off", "provider", "endpoint"] = "off"
    kind: Literal["json", "searxng", "brave", "tavily"] = "json"
    """The kind of endpoint, with defaults for the following."""
    url: str = ""
    """`{query}` and `{count}` stand for what is looked for and how much of it is wanted."""
    key_env: str = ""
    """The variable that has the key."""
    header: str = ""
    """The header that the key goes with, as in `Authorization: Bearer {key}`."""
    body: str = ""
    """The body to post, if any, with placeholders as in the address."""
    results: str = ""
    """The path of the result list, as in `web.results`; then the fields of each result."""
    title: str = ""
    link: str = ""
    text: str = ""
    date: str = ""


class BrowserSettings(SettingsGroup, frozen=True):
    """A browser that the model may use."""

    enabled: bool = False
    path: str = ""
    """The program; empty for the Chromium or Chrome that is found."""
    visible: bool = False
    """Show the browser window."""


class LocalModelSettings(SettingsGroup, frozen=True):
    """Models that run on this machine."""

    fallback: bool = True
    """Let the small bundled model answer where no other can."""
    threads: Count = 1
    """The number of threads; on a busy machine, more than one wait for each other."""


class LanguageServerSettings(SettingsGroup, frozen=True):
    """A language server; what is left out of a known one is as usual."""

    command: tuple[str, ...] = ()
    """The program and its arguments."""
    extensions: dict[str, str] = {}
    """The language of each file suffix, by the protocol's names: `{".py": "python"}`."""
    initialization_options: Json = {}
    settings: Json = {}
    """What the server is told if it asks for its settings."""
    enabled: bool = True


class LspSettings(SettingsGroup, frozen=True):
    """Language servers: errors after edits, and the LSP tool."""

    enabled: bool = True
    servers: dict[str, LanguageServerSettings] = {}
    """More servers, or changes of known ones, by name."""
    edit_seconds: Seconds = 3.0
    """The most seconds that the result of an edit waits for new errors; they come later then."""
    request_seconds: Seconds = 30.0
    """The most seconds that a call of LSP takes."""


class TuiSettings(SettingsGroup, frozen=True):
    """The terminal interface."""

    theme: str = "auto"
    """`auto`, `dark`, `light`, `none`, or the name of a file in `~/.travois/themes`."""
    vim: bool = False
    """Edit the prompt with vi keys."""
    plain: bool = False
    """Print plain lines only, for screen readers."""
    title: bool = True
    """Show what the session is about in the terminal's title."""
    notify: Literal["auto", "bell", "osc9", "osc777", "off"] = "auto"
    """How to tell somebody who looks elsewhere that a turn is over or a question is open."""


class StatusLineSettings(SettingsGroup, frozen=True):
    """A user's program whose output is shown below the prompt."""

    type: str = "command"
    command: str = ""
    padding: int = 0
    refresh_interval: float = 0.0
    """The interval, in seconds, at which it runs though nothing has changed; 0 for never."""


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """All settings; 0 means no limit, empty means nothing was chosen."""

    model: str = ""
    effort_level: Effort = ""
    """The reasoning effort to ask for; empty for the model's default."""
    fallback_models: tuple[str, ...] = ()
    """Models that answer, in this order, while the model cannot."""
    available_models: tuple[str, ...] = ()
    denied_models: tuple[str, ...] = ()
    """The only models that may answer, and those that may not: names, ids, or words of ids."""
    model_overrides: dict[str, str] = {}
    """A provider's own names for models, by our id."""
    model_pricing: PricingSettings = PricingSettings()
    max_effort_level: Effort = ""
    """More is not asked of any model."""
    model_settings: dict[str, ModelSettings] = {}
    """Effort, maximum effort and window of single models, by id."""
    api_key_helper: str = ""
    """A command that prints the key for Anthropic's API."""
    language: str = ""
    """The language to answer in."""
    attribution: AttributionSettings = AttributionSettings()
    providers: dict[str, Json] = {}
    """Providers by name, in the format of `catalog.toml`, added to the catalogue."""
    models: dict[str, Json] = {}
    """Models by `provider/id`, in the same format."""
    max_turns: Count = 0
    max_budget_usd: Quantity = 0.0
    max_tokens: Count = 0
    max_seconds: Quantity = 0.0
    limits: LimitScope = ""
    session_store: str = ""
    """The address of a session store: a folder, postgresql://…, s3://…"""
    """Whether these hold for one run or for the session over all its runs."""
    max_depth: Count = 3
    """The most levels of subagents."""
    max_agents: Count = 0
    agent_progress_seconds: Quantity = 30.0
    """The interval at which a small model describes a subagent's work; 0 for rules alone."""
    max_output_tokens: Count = 0
    max_mcp_output_tokens: Count = 25_000
    """The most tokens of an MCP tool result that are shown; the rest is in a file."""
    permissions: PermissionSettings = PermissionSettings()
    env: dict[str, str] = {}
    """Variables for the programs that tools start."""
    env_passthrough: tuple[str, ...] = ()
    """Names of our own variables that those programs may see besides the harmless ones."""
    timeouts: TimeoutSettings = TimeoutSettings()
    retry: RetrySettings = RetrySettings()
    sandbox: SandboxSettings = SandboxSettings()
    context: ContextSettings = ContextSettings()
    mail: MailSettings = MailSettings()
    memory: MemorySettings = MemorySettings()
    lsp: LspSettings = LspSettings()
    tui: TuiSettings = TuiSettings()
    status_line: StatusLineSettings = StatusLineSettings()
    search: SearchSettings = SearchSettings()
    local: LocalModelSettings = LocalModelSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    browser: BrowserSettings = BrowserSettings()
    agent: str = ""
    """The kind of agent that the person talks to; empty for ours."""
    output_style: str = ""
    """The name of a file that says how the model should speak."""
    toolset: Literal["auto", "claude", "openai", "gemini", "qwen"] = "auto"
    """The tool names that the model sees; `auto` for those of its family."""
    skill_overrides: dict[str, str] = {}
    """Visibility of skills to the model: `on`, `name-only`, `user-invocable-only` or `off`."""
    skill_listing_budget_fraction: Quantity = 0.01
    """The share of the window that the list of skills may take."""
    skill_listing_max_desc_chars: Count = 1_536
    """The most characters of a skill's description."""
    disable_skill_shell_execution: bool = False
    """Leave shell commands in the text of skills and commands as text."""
    plugins: tuple[str, ...] = ()
    """Folders of plugins; one that is relative counts from the workspace."""
    enabled_plugins: dict[str, object] = {}
    disabled_packages: tuple[str, ...] = ()
    """Installed packages that are not to extend Travois."""
    """Enabled and disabled plugins, by `name@marketplace` for Claude Code's."""
    plugin_configs: dict[str, Json] = {}
    """Options of plugins, by the same names, under `options`."""
    instructions: tuple[str, ...] = ()
    """Patterns of more files that say how to work, from the workspace on."""
    claude_md: str = ""
    """Instructions of the machine's administrator, as a text."""
    claude_md_excludes: tuple[str, ...] = ()
    """Patterns of instruction files, by absolute path, that are not wanted."""
    enable_all_project_mcp_servers: bool = False
    enabled_mcpjson_servers: tuple[str, ...] = ()
    disabled_mcpjson_servers: tuple[str, ...] = ()
    """Servers of any workspace's `.mcp.json` that the user agreed to, and that are not wanted."""
    allowed_mcp_servers: tuple[str, ...] = ()
    denied_mcp_servers: tuple[str, ...] = ()
    """The only servers that may be used, and those that may not, each as JSON."""
    worktree: WorktreeSettings = WorktreeSettings()
    cleanup_period_days: Count = 0
    """Sessions that nobody touched for so long are thrown away when one starts."""
    file_checkpointing_enabled: bool = True
    """Save files before they are changed."""
    plans_directory: str = ""
    """The folder for approved plans; empty for none."""
    company_announcements: tuple[str, ...] = ()
    """Lines of which a person is told one when they start."""
    telemetry: bool = False
    """Send telemetry to an OpenTelemetry collector; an endpoint variable turns it on, too."""
    otel_headers_helper: str = ""
    """A command that prints headers for it, as a JSON object."""
    disable_all_hooks: bool = False
    """Disable all hooks but the administrator's."""
    allowed_http_hook_urls: tuple[str, ...] = ()
    http_hook_allowed_env_vars: tuple[str, ...] = ()


class Plugin(msgspec.Struct, frozen=True):
    """A plugin: its name, and the folders and files of what it provides."""

    name: str
    folder: str
    version: str = ""
    description: str = ""
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    """Folders."""
    hooks: tuple[tuple[str, Json], ...] = ()
    """Each file that names some, with its events."""
    servers: tuple[tuple[str, Json], ...] = ()
    """Each file that names servers of tools, with its `mcpServers`."""
    keeps: str = ""
    """The folder for what it keeps."""
    lead: str = ""
    """The kind of agent that a person talks to where nothing else is asked for."""


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings in force, the origin of each, and notices for the user."""

    settings: Settings
    origins: dict[str, str]
    """The origin of each key, as in `timeouts.idle`, or rule, as in `permissions.deny[Bash]`."""
    notices: tuple[str, ...] = ()
    borrowed: frozenset[str] = frozenset()
    """Keys that files of another agent decided."""
    rules: tuple[PermissionRule, ...] = ()
    """All rules, each with its origin and the folder that its paths count from."""
    hooks: tuple[tuple[str, Json], ...] = ()
    """The hooks that may run: each place that names some, with its events as they were written."""
    own_hooks: frozenset[str] = frozenset()
    """The places of those that the user or the administrator wrote."""
    places: tuple[str, ...] = ()
    """The folders that commands of the workspace run in."""
    changed: dict[str, tuple[str, ...]] = {}
    """Changed files that trusted hooks and servers reach, by the approved line."""
    scripts: tuple[str, ...] = ()
    """Files of the workspace that those hooks run: to change one is to change the hook."""
    trust: TrustStatus = "unknown"
    root: str = ""
    """The folder that trust is about."""
    plugins: tuple[Plugin, ...] = ()
    packages: tuple[Package, ...] = ()
    """The installed packages that extend Travois here."""
    wanted: tuple[str, ...] = ()
    """The requests of the workspace that need trust, one line each."""
    environ: dict[str, str] = {}
    """Variables for Travois itself, of which no workspace sets any."""
    files: tuple[str, ...] = ()
    """The files of settings that were read, the weakest first."""

    def origin(self, key: str, item: str = "") -> str:
        """Return the file, variable or flag that decided this."""
        whole = self.origins.get(key, "default")
        return self.origins.get(f"{key}[{item}]", whole) if item else whole
