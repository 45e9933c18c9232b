/**
 * The building blocks of the pod model. Kubernetes has three kinds of fields, and so have we:
 *
 * - optional: may be missing, before and after parsing;
 * - required: a missing one becomes the zero value (`""`, `[]`), which validation then names as "Required value";
 * - defaulted: may be missing in a manifest, is there in a `Pod`, because `applyPodDefaults` fills it in.
 *
 * Schemas are shared instances wherever two fields look alike: a schema costs some KB of resident memory, a use
 * nothing.
 */
import * as z from "zod/mini";

type AnySchema = z.core.SomeType;

const string = z.string();
const int32 = z.int32();
const int64 = z.int();
const boolean = z.boolean();
const anything = z.unknown();
/** Kubernetes' IntOrString, and a quantity, which YAML often shows as a number. */
const numberOrString = z.union([z.number(), string]);
const textMap = z.record(string, string);
const quantityMap = z.record(string, numberOrString);

/** The schema accepts its absence; `applyPodDefaults` sees to it that no `Pod` is without it. */
function defaulted<S extends AnySchema>(optional: z.ZodMiniOptional<S>): z.ZodMiniDefault<S> {
  return optional as unknown as z.ZodMiniDefault<S>;
}

export const optionalText = z.optional(string);
export const requiredText = z._default(string, "");
export const defaultedText = defaulted(optionalText);
export const optionalInt32 = z.optional(int32);
export const requiredInt32 = z._default(int32, 0);
export const defaultedInt32 = defaulted(optionalInt32);
export const optionalInt64 = z.optional(int64);
export const requiredInt64 = z._default(int64, 0);
export const defaultedInt64 = defaulted(optionalInt64);
export const optionalFlag = z.optional(boolean);
export const defaultedFlag = defaulted(optionalFlag);
export const optionalTextMap = z.optional(textMap);
/** Any value; it passes through unchanged. */
export const opaque = z.optional(anything);

export const optionalTexts = z.optional(z.array(string));
export const optionalInt32s = z.optional(z.array(int32));
export const optionalInt64s = z.optional(z.array(int64));

/** A port's number or name, or another value that may be either. */
export const requiredIntOrText = z._default(numberOrString, "");

type QuantitySchema = z.ZodMiniType<string, string | number>;
/** A quantity; `applyPodDefaults` turns a number into the string it stands for. */
export const optionalQuantity = z.optional(numberOrString as unknown as QuantitySchema);
/** Quantities by resource name; numbers become strings as above. */
export const optionalQuantities = z.optional(
  quantityMap as unknown as z.ZodMiniType<Record<string, string>, Record<string, string | number>>,
);

type TextOf<V extends string> = z.ZodMiniType<V, V>;

/** A string of which validation, not the schema, says whether it is one of `V`: the message is Kubernetes' own. */
export const optionalOneOf = <V extends string>(): z.ZodMiniOptional<TextOf<V>> =>
  optionalText as unknown as z.ZodMiniOptional<TextOf<V>>;
export const requiredOneOf = <V extends string>(): z.ZodMiniDefault<TextOf<V>> =>
  requiredText as unknown as z.ZodMiniDefault<TextOf<V>>;
export const defaultedOneOf = <V extends string>(): z.ZodMiniDefault<TextOf<V>> =>
  optionalText as unknown as z.ZodMiniDefault<TextOf<V>>;

/**
 * An object whose unknown fields are kept; its type has the known ones only, so that a misspelt one does not compile.
 */
export const object = <S extends z.core.$ZodLooseShape>(
  shape: S,
): z.ZodMiniObject<z.core.util.Writeable<S>, z.core.$strip> =>
  z.catchall(z.object(shape), anything) as unknown as z.ZodMiniObject<z.core.util.Writeable<S>, z.core.$strip>;

export const optional = <S extends AnySchema>(schema: S): z.ZodMiniOptional<S> => z.optional(schema);
export const optionalList = <S extends AnySchema>(schema: S): z.ZodMiniOptional<z.ZodMiniArray<S>> =>
  z.optional(z.array(schema));
export const requiredList = <S extends AnySchema>(schema: S): z.ZodMiniDefault<z.ZodMiniArray<S>> =>
  z._default(z.array(schema), () => []);
/** An object that is made, with its own zero values, when it is missing. */
export const requiredObject = <S extends AnySchema>(schema: S): z.ZodMiniPrefault<S> =>
  z.prefault(schema, () => ({}) as z.input<S>);
export const defaultedObject = <S extends AnySchema>(schema: S): z.ZodMiniDefault<S> => defaulted(z.optional(schema));

/** Deeply readonly, which is how everyone but the parser sees a pod. */
export type Immutable<T> = unknown extends T
  ? T
  : T extends string | number | boolean
    ? T
    : T extends readonly (infer E)[]
      ? readonly Immutable<E>[]
      : T extends object
        ? { readonly [K in keyof T]: Immutable<T[K]> }
        : T;
export type Parsed<S extends AnySchema> = Immutable<z.output<S>>;
