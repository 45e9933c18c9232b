/**
 * The content of frames. The runner begins with a `Hello`, which is answered before anything else may be sent. From
 * then on each request has one answer, in order.
 */
import type { Plain, ServiceMessage } from "@picolet/runtime-contract/board-services.ts";

/**
 * The version of this protocol. A runner may be older than the agent, so later agents must understand the messages of
 * earlier ones.
 */
export const PROTOCOL_VERSION = 1;
/** In the adapter's state folder. */
export const SERVICE_SOCKET = "services.sock";
/** 32 random bytes in hexadecimal. */
export const TOKEN_PATTERN = /^[0-9a-f]{64}$/;
const METHOD = /^([a-z][a-z0-9-]{0,31})\.([a-z][a-z0-9-]{0,31})$/;

export interface Hello {
  readonly version: number;
  readonly token: string;
}

export interface Request extends ServiceMessage {
  readonly id: number;
  /** `<interface>.<method>` */
  readonly method: string;
}

export type Answer =
  | (ServiceMessage & { readonly id: number; readonly ok: true })
  | { readonly id: number; readonly ok: false; readonly tag: string; readonly val: string | number | undefined };

const MAX_ERROR_LENGTH = 1024;

export const helloMessage = ({ version, token }: Hello): ServiceMessage => ({ value: { version, token }, bytes: [] });

export function readHello({ value }: ServiceMessage): Hello | undefined {
  const { version, token } = record(value);
  return typeof version === "number" && typeof token === "string" && TOKEN_PATTERN.test(token)
    ? { version, token }
    : undefined;
}

export const welcomeMessage: ServiceMessage = { value: { version: PROTOCOL_VERSION }, bytes: [] };

export const readWelcome = ({ value }: ServiceMessage): boolean => record(value).version === PROTOCOL_VERSION;

export const requestMessage = ({ id, method, value, bytes }: Request): ServiceMessage => ({
  value: { id, method, value },
  bytes,
});

export function readRequest({ value: whole, bytes }: ServiceMessage): Request | undefined {
  const { id, method, value = null } = record(whole);
  if (!isId(id) || typeof method !== "string" || !METHOD.test(method)) return undefined;
  return { id, method, value, bytes };
}

/** The interface's name and the method's. */
export function splitMethod(method: string): readonly [service: string, method: string] {
  const [, service = "", own = ""] = METHOD.exec(method) ?? [];
  return [service, own];
}

export function answerMessage(answer: Answer): ServiceMessage {
  const { id } = answer;
  if (answer.ok) return { value: { id, value: answer.value }, bytes: answer.bytes };
  const { tag } = answer;
  const val = typeof answer.val === "string" ? answer.val.slice(0, MAX_ERROR_LENGTH) : answer.val;
  return { value: { id, error: val === undefined ? { tag } : { tag, val } }, bytes: [] };
}

export function readAnswer({ value: whole, bytes }: ServiceMessage): Answer | undefined {
  const { id, value = null, error } = record(whole);
  if (!isId(id)) return undefined;
  if (error === undefined) return { id, ok: true, value, bytes };
  const { tag, val } = record(error);
  if (typeof tag !== "string") return undefined;
  return { id, ok: false, tag, val: typeof val === "string" || typeof val === "number" ? val : undefined };
}

const isId = (value: Plain | undefined): value is number => Number.isSafeInteger(value) && Number(value) > 0;

/** A value that is no object has no members. */
function record(value: Plain): Readonly<Record<string, Plain | undefined>> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, Plain | undefined>>)
    : {};
}
