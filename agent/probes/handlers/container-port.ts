import type { Container } from "@picolet/protocol/pod/pod.ts";
import { goQuote } from "./go-text.ts";

const MAX_PORT = 65_535;

/**
 * A port by its number, or by its name among the container's own.
 * @throws Error with the kubelet's text when there is none.
 */
export function resolvePort(port: number | string, { ports = [] }: Container): number {
  const named = typeof port === "string" ? ports.find(({ name }) => name === port) : undefined;
  const number = named?.containerPort ?? (typeof port === "number" ? port : parsePort(port));
  if (number > 0 && number <= MAX_PORT) return number;
  throw new Error(`invalid port number: ${number}`);
}

function parsePort(text: string): number {
  if (/^[+-]?\d{1,15}$/.test(text)) return Number(text);
  throw new Error(`strconv.Atoi: parsing ${goQuote(text)}: invalid syntax`);
}
