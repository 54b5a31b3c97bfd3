"""Types of the requests: dicts with the names of the contract's fields.

A type checker refuses a name or a value that the contract does not have. Every key may be left out, unless
its type says otherwise; the contract's default then applies. An enum is its label in lower case, such as
`"literal"`. A test compares these types with the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, List, Literal, Optional, Tuple, Type, TypedDict, Union

from tandem.chat.v1 import chat_pb2
from tandem.generate.v1 import generate_pb2, output_spec_pb2
from tandem.render.v1 import render_pb2
from tandem.task.v1 import task_pb2

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

Json = Union[str, Mapping[str, Any]]
"""A JSON object: a dict, or JSON text, which is sent unchanged."""

Schema = Union[str, Mapping[str, Any], Type[Any]]
"""A JSON schema: a dict, its text, or a class: a dataclass, or one with `model_json_schema()` as pydantic's."""

Texts = Union[List[str], Tuple[str, ...]]
"""A list of texts. A text alone, whose characters are texts too, is an error."""

ControlTokens: TypeAlias = Literal["tokens", "literal"]
Normalization: TypeAlias = Literal["capability", "none"]
Capability: TypeAlias = Literal[
    "supports_system_role",
    "requires_strict_turns",
    "supports_tool_calls",
    "supports_reasoning",
    "supports_content_blocks",
]
MediaKind: TypeAlias = Literal["image", "audio", "video"]
SpecialTokenAction: TypeAlias = Literal["drop", "pass"]
Whitespace: TypeAlias = Literal["bounded", "none", "free"]
ToolChoiceMode: TypeAlias = Literal["auto", "none", "required"]


# Conversations


class TextBlock(TypedDict):
    """Text in a list of blocks."""

    type: Literal["text"]
    text: str


class _MediaType(TypedDict):
    type: MediaKind


class MediaBlock(_MediaType, total=False):
    """An image, an audio recording or a video, with one source. `image()` makes it from a file."""

    data: bytes
    """The content of the file."""
    base64: str
    url: str
    path: str
    attachment_id: str
    """The id of an entry of `template_args["attachments"]`."""
    mime_type: str


class _Url(TypedDict):
    url: str


class ImageUrl(_Url, total=False):
    """The URL of an image: `data:`, or of a host that the operator allows."""

    detail: str


class ImageUrlBlock(TypedDict):
    """An image in the shape of OpenAI."""

    type: Literal["image_url"]
    image_url: ImageUrl


class _ToolUse(TypedDict):
    type: Literal["tool_use"]
    name: str


class ToolUseBlock(_ToolUse, total=False):
    """A call of a tool in a list of blocks."""

    id: str
    input: Json


class _ToolResult(TypedDict):
    type: Literal["tool_result"]


class ToolResultBlock(_ToolResult, total=False):
    """The result of a call in a list of blocks."""

    tool_use_id: str
    content: Union[str, None, Iterable[Union[TextBlock, MediaBlock, ImageUrlBlock]]]
    is_error: bool


Block = Union[TextBlock, MediaBlock, ImageUrlBlock, ToolUseBlock, ToolResultBlock, str, chat_pb2.Block]
"""A block of content. A block of any other type is its JSON text."""


class _CalledFunction(TypedDict):
    name: str


class CalledFunction(_CalledFunction, total=False):
    """The function of a call. `arguments` is JSON text, as models write it, or a dict."""

    arguments: Json


class _ToolCall(TypedDict):
    function: CalledFunction


class ToolCall(_ToolCall, total=False):
    """A call of a tool by the assistant."""

    id: str
    type: Literal["function"]


class AnswerFunction(TypedDict):
    """The function of a call in an answer."""

    name: str
    arguments: str
    """JSON text."""


class AnswerToolCall(TypedDict):
    """A call of a tool in an answer: a `ToolCall` with all keys, and with its arguments as JSON text."""

    id: str
    type: Literal["function"]
    function: AnswerFunction


class _Role(TypedDict):
    role: str


class MessageDict(_Role, total=False):
    """A message of a conversation."""

    content: Union[str, None, Iterable[Block]]
    reasoning_content: Optional[str]
    """The reasoning before the assistant's answer."""
    tool_calls: Optional[Iterable[Union[ToolCall, AnswerToolCall, chat_pb2.ToolCall]]]
    tool_call_id: Optional[str]
    """The id of the answered call, in a tool's message."""
    name: Optional[str]
    """The name of the speaker or of the tool."""


Message = Union[MessageDict, chat_pb2.ChatMessage]
"""A message, such as `{"role": "user", "content": "Hi"}`."""


class _Function(TypedDict):
    name: str


class Function(_Function, total=False):
    """A function that the model may call."""

    description: str
    parameters: Mapping[str, Any]
    """A JSON schema."""
    strict: bool


class FunctionTool(TypedDict):
    """A tool in the shape of OpenAI."""

    type: Literal["function"]
    function: Function


class _InputTool(TypedDict):
    name: str
    input_schema: Mapping[str, Any]


class InputTool(_InputTool, total=False):
    """A tool that names its parameters `input_schema`."""

    description: str


Tool = Union[FunctionTool, InputTool, str]
"""A tool that the model may call. A tool of any other shape is its JSON text."""


# Rendering


class CapabilityOverride(TypedDict, total=False):
    """The complete list of the capabilities of a template."""

    capabilities: Iterable[Capability]


class RenderOptions(TypedDict, total=False):
    """The options of rendering."""

    add_generation_prompt: bool
    continue_final_message: bool
    adapter: str
    render_time: str
    """The time that templates see, such as "2025-07-04T09:05:03"."""
    normalization: Normalization
    template: str
    control_tokens: ControlTokens
    """The meaning of text that spells a control token. "literal" for text of people that you do not trust."""
    capabilities: Union[CapabilityOverride, render_pb2.CapabilityOverride]
    continue_final_field: str


# Generation


class Sampling(TypedDict, total=False):
    """The choice of the next token. Unset parameters have the defaults of the model."""

    temperature: float
    """0 is greedy."""
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    typical_p: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    """Values to add to the logits of token ids."""
    n: int
    """The number of outputs. A task has one."""


class Stop(TypedDict, total=False):
    """The conditions that end an output."""

    max_new_tokens: int
    stop_strings: Texts
    stop_token_ids: Iterable[int]
    ignore_eos: bool
    min_new_tokens: int
    include_stop: bool
    max_reasoning_tokens: int


class ReturnOptions(TypedDict, total=False):
    """The values to return besides text."""

    token_ids: bool
    logprobs: int
    """The number of the likeliest tokens at each position, besides the output's. 0 to 20."""
    prompt_logprobs: int
    bytes: bool
    extracted_text: bool


class Choice(TypedDict, total=False):
    """The possible outputs."""

    values: Texts


class GrammarDict(TypedDict, total=False):
    """A constraint on the output, with one kind."""

    json_schema: Schema
    regex: str
    lark: str
    choice: Union[Choice, generate_pb2.Choice]
    after_reasoning: bool
    """The output may start with reasoning where it need not."""
    whitespace: Whitespace
    """The white space between the tokens of JSON."""


Grammar = Union[GrammarDict, generate_pb2.Grammar, Type[Any]]
"""A constraint on the output. A class means its JSON schema."""


class ReasoningMarkers(TypedDict, total=False):
    """The markers that enclose the model's reasoning."""

    start_token_ids: Iterable[int]
    end_token_ids: Iterable[int]
    start_strings: Texts
    end_strings: Texts


class ExtractionRules(TypedDict, total=False):
    """The rules that derive the extracted text."""

    strip_reasoning: bool
    cut_head: str
    strip_lines: Texts


class SpecialTokenClass(TypedDict, total=False):
    """Special tokens with the same treatment."""

    name: str
    token_ids: Iterable[int]
    action: SpecialTokenAction


class OutputSpec(TypedDict, total=False):
    """The interpretation of the model's output."""

    eos_token_ids: Iterable[int]
    stop_strings: Texts
    special_token_classes: Iterable[Union[SpecialTokenClass, output_spec_pb2.SpecialTokenClass]]
    reasoning: Union[ReasoningMarkers, output_spec_pb2.ReasoningMarkers]
    extraction: Union[ExtractionRules, output_spec_pb2.ExtractionRules]


class Resume(TypedDict, total=False):
    """The state of an output to resume."""

    generated_tokens: int
    output_index: int
    token_ids: Iterable[int]


class Media(TypedDict, total=False):
    """A media file and its place in the prompt, with one source."""

    kind: MediaKind
    data: bytes
    base64: str
    url: str
    mime_type: str
    offset: int


# Requests


class Options(TypedDict, total=False):
    """The options of every call."""

    timeout: float
    """The deadline in seconds, retries included. Default: the client's."""
    request_id: str
    """The id of the call in the service's log. Default: the service chooses one."""


class ConversationFields(TypedDict, total=False):
    """The parts of a conversation besides its messages, the model, and the options of rendering."""

    tools: Iterable[Tool]
    documents: Iterable[Json]
    template_args: Json
    model: str
    options: Union[RenderOptions, render_pb2.RenderOptions]


class RenderFields(ConversationFields, total=False):
    """The fields of RenderRequest."""

    return_token_ids: bool
    return_offsets: bool
    omit_media: bool


class _Messages(TypedDict):
    messages: Messages


class RenderRequest(_Messages, RenderFields, total=False):
    """One request of a batch: the messages, and the arguments of `render`."""


class RenderArguments(Options, RenderFields, total=False):
    """The arguments of `render`."""


class GenerationFields(TypedDict, total=False):
    """The fields that RunTaskRequest and GenerateRequest share."""

    sampling: Union[Sampling, generate_pb2.Sampling]
    stop: Union[Stop, generate_pb2.Stop]
    return_options: Union[ReturnOptions, generate_pb2.ReturnOptions]
    priority: int
    """Requests with a higher priority start earlier. Default: 0."""
    cache_salt: str
    """Requests share cached prompts only if they have the same salt."""
    grammar: Grammar
    """A constraint on the output: a kind of grammar, or a class."""
    output_spec: Union[OutputSpec, output_spec_pb2.OutputSpec]


class ChosenFunction(TypedDict):
    """The function of a `FunctionChoice`."""

    name: str


class FunctionChoice(TypedDict):
    """The choice of one tool by its name, in the shape of OpenAI."""

    type: Literal["function"]
    function: ChosenFunction


ToolChoice = Union[ToolChoiceMode, FunctionChoice, task_pb2.ToolChoice]
"""The tools that an answer calls, in the shape of OpenAI."""


class TaskFields(Options, ConversationFields, GenerationFields, total=False):
    """The arguments of `run`: the fields of RunTaskRequest, and the options of a call."""

    parse_output: bool
    """Read the answer's reasoning, content and tool calls apart."""
    tool_choice: ToolChoice
    """The tools that the answer calls. "none": no tool. "required": at least one. Default: as the model decides."""
    parallel_tool_calls: bool
    """False: the answer calls one tool at most."""


class GenerateFields(Options, GenerationFields, total=False):
    """The arguments of `generate`: the fields of GenerateRequest without the prompt, and the options of a call."""

    model: str
    expected_tokenizer_sha256: str
    resume: Union[Resume, generate_pb2.Resume]
    media: Iterable[Union[Media, generate_pb2.Media]]


class TokenizeFields(Options, total=False):
    """The arguments of `tokenize`."""

    model: str
    add_special_tokens: bool
    return_offsets: bool
    control_tokens: ControlTokens


class DetokenizeFields(Options, total=False):
    """The arguments of `detokenize`."""

    model: str
    skip_special_tokens: bool


class ParseFields(Options, total=False):
    """The arguments of `parse_output`."""

    model: str
    prompt: str
    """The prompt, or its end from the start of the assistant's turn."""
    tools: Iterable[Tool]
    rules: str
    """The name of the rules. Default: those of the model."""


Messages = Union[chat_pb2.Conversation, Iterable[Message]]
"""A conversation: messages in the shape of OpenAI and Hugging Face, or the contract's own."""
