// Types of the requests, made from the contract's messages: a field that is new there is new here.
//
// Every key may be left out; the contract's default then applies. An enum is its label in lower case, such as
// "literal". The fields of a oneof are keys of their message, and at most one of them is set.

import type { Message } from "@bufbuild/protobuf";
import { type GenerateRequest, type Grammar, Whitespace } from "./contract/tandem/generate/v1/generate_pb.js";
import { MediaKind } from "./contract/tandem/generate/v1/media_kind_pb.js";
import { SpecialTokenAction } from "./contract/tandem/generate/v1/output_spec_pb.js";
import type { ParseOutputRequest } from "./contract/tandem/render/v1/parse_pb.js";
import { Capability } from "./contract/tandem/render/v1/registry_pb.js";
import {
  ControlTokens,
  type DetokenizeRequest,
  Normalization,
  type RenderRequest,
  type TokenizeRequest,
} from "./contract/tandem/render/v1/render_pb.js";
import { type RunTaskRequest, type ToolChoice, ToolChoiceMode } from "./contract/tandem/task/v1/task_pb.js";
import type { ConversationParts } from "./conversation.js";

/** The enums of the requests, by their names in the contract. */
export const ENUMS = {
  "tandem.generate.v1.MediaKind": MediaKind,
  "tandem.generate.v1.SpecialTokenAction": SpecialTokenAction,
  "tandem.generate.v1.Whitespace": Whitespace,
  "tandem.render.v1.Capability": Capability,
  "tandem.render.v1.ControlTokens": ControlTokens,
  "tandem.render.v1.Normalization": Normalization,
  "tandem.task.v1.ToolChoiceMode": ToolChoiceMode,
};

type EnumObject = (typeof ENUMS)[keyof typeof ENUMS];

/** The labels of the enum that a number belongs to. */
type Label<E, O = EnumObject> = O extends unknown
  ? E extends O[keyof O]
    ? Lowercase<Exclude<keyof O & string, "UNSPECIFIED">>
    : never
  : never;

/** A value of a field, as callers give it. */
type Value<V> = V extends Uint8Array
  ? Uint8Array
  : V extends Grammar
    ? GrammarInit
    : V extends ToolChoice
      ? ToolChoiceInit
      : V extends Message
        ? V | Fields<V>
        : V extends readonly (infer I)[]
          ? readonly Value<I>[]
          : V extends object
            ? { readonly [K in keyof V]: Value<V[K]> }
            : V extends bigint
              ? bigint | number
              : V extends number
                ? `${number}` extends `${V}` // a number is assignable to an enum, its text is not
                  ? number
                  : V | Label<V>
                : V;

type Oneof = { case: string | undefined };
type OneofKey<M> = { [K in keyof M]-?: [NonNullable<M[K]>] extends [Oneof] ? K : never }[keyof M];
type Cases<U> = U extends { case: infer C extends string; value: infer V } ? { [K in C]?: Value<V> } : never;
type Intersection<U> = (U extends unknown ? (member: U) => void : never) extends (all: infer I) => void ? I : never;

/** The fields of a message of the contract. */
export type Fields<M> = {
  [K in keyof M as K extends "$typeName" | "$unknown" | OneofKey<M> ? never : K]?: Value<M[K]> | undefined;
} & Intersection<Cases<M[OneofKey<M>]>>;

/** A schema of a library, such as Zod's. */
export interface SchemaSource {
  toJSONSchema(): unknown;
}

/** A JSON schema: an object, its text, or a schema of a library. */
export type JsonSchema = string | SchemaSource | { readonly [key: string]: unknown };

/** A constraint on the output, with one kind. A schema of a library means its JSON schema. */
export type GrammarInit =
  Grammar | SchemaSource | (Omit<Fields<Grammar>, "jsonSchema"> & { jsonSchema?: JsonSchema; toJSONSchema?: never });

/** The tools that an answer calls, in the shape of OpenAI. */
export type ToolChoiceInit =
  ToolChoice | Label<ToolChoiceMode> | { readonly type: "function"; readonly function: { readonly name: string } };

/** The fields of RunTaskRequest besides the messages. */
export interface TaskFields extends ConversationParts, Omit<Fields<RunTaskRequest>, "conversation"> {}

/** The fields of RenderRequest besides the messages. */
export interface RenderFields extends ConversationParts, Omit<Fields<RenderRequest>, "conversation"> {}

/** The fields of GenerateRequest without the prompt. `render` makes the input of a template. */
export interface GenerateFields extends Omit<
  Fields<GenerateRequest>,
  "prompt" | "tokenIds" | "hfMessagesJson" | "hfTemplate"
> {}

/** The fields of TokenizeRequest without the text. */
export interface TokenizeFields extends Omit<Fields<TokenizeRequest>, "text"> {}

/** The fields of DetokenizeRequest without the ids. */
export interface DetokenizeFields extends Omit<Fields<DetokenizeRequest>, "tokenIds"> {}

/** The fields of ParseOutputRequest without the output. */
export interface ParseFields
  extends Pick<ConversationParts, "tools">, Omit<Fields<ParseOutputRequest>, "text" | "tokens" | "tools"> {}
