/** Kubernetes' field errors (apimachinery, pkg/util/validation/field), worded as kubectl's users know them. */

export type FieldErrorType =
  | "FieldValueNotFound"
  | "FieldValueRequired"
  | "FieldValueDuplicate"
  | "FieldValueInvalid"
  | "FieldValueNotSupported"
  | "FieldValueForbidden"
  | "FieldValueTooLong"
  | "FieldValueTooMany";

export interface FieldError {
  readonly type: FieldErrorType;
  /** `spec.containers[0].name`. */
  readonly field: string;
  /** Everything after the field: `Invalid value: "x": must be …`. */
  readonly message: string;
}

/** Bounds a value in a Status; the rest is cut. */
const MAX_VALUE_LENGTH = 256;

function show(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value) ?? "null");
  return text.length > MAX_VALUE_LENGTH ? `${text.slice(0, MAX_VALUE_LENGTH)}...` : text;
}

const withDetail = (text: string, detail: string): string => (detail === "" ? text : `${text}: ${detail}`);

export const invalidValue = (field: string, value: unknown, detail: string): FieldError => ({
  type: "FieldValueInvalid",
  field,
  message: withDetail(`Invalid value: ${show(value)}`, detail),
});

export const requiredValue = (field: string, detail = ""): FieldError => ({
  type: "FieldValueRequired",
  field,
  message: withDetail("Required value", detail),
});

export const duplicateValue = (field: string, value: unknown): FieldError => ({
  type: "FieldValueDuplicate",
  field,
  message: `Duplicate value: ${show(value)}`,
});

export const forbiddenValue = (field: string, detail: string): FieldError => ({
  type: "FieldValueForbidden",
  field,
  message: withDetail("Forbidden", detail),
});

export const notSupportedValue = (field: string, value: unknown, supported: readonly string[]): FieldError => ({
  type: "FieldValueNotSupported",
  field,
  message: `Unsupported value: ${show(value)}: supported values: ${supported.map((each) => JSON.stringify(each)).join(", ")}`,
});

export const tooLongValue = (field: string, maxBytes: number): FieldError => ({
  type: "FieldValueTooLong",
  field,
  message: `Too long: may not be more than ${maxBytes} bytes`,
});

/** The text of one error in a message. */
export const describeFieldError = ({ field, message }: FieldError): string => `${field}: ${message}`;
