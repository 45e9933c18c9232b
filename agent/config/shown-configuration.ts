/**
 * A configuration as a file would have it, for people and for /configz. Loaded only when it is asked for: it needs the
 * table of fields.
 */
import { formatDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { formatQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { Configuration } from "./configuration.ts";
import { CONFIGURATION_FIELDS, type Field, type FieldTable } from "./configuration-fields.ts";

/** In the place of what would let its reader in somewhere: the token of a hub, headers for a web server. */
export const REDACTED = "***";

/** Fields by name, durations as Go writes them, sizes as quantities. What is not set and has no default is left out. */
export function shownConfiguration(
  configuration: Configuration,
  table: FieldTable = CONFIGURATION_FIELDS,
): Readonly<Record<string, unknown>> {
  const { hub, staticPodURLHeader, wasm } = configuration;
  const headers = Object.entries(staticPodURLHeader).map(
    ([name, values]) => [name, values.map(() => REDACTED)] as const,
  );
  return shownMapping(
    {
      ...configuration,
      wasm: { ...wasm, proxy: withoutUsers(wasm.proxy) },
      staticPodURLHeader: Object.fromEntries(headers),
      hub:
        hub === null
          ? undefined
          : { ...hub, ...withoutUsers({ proxy: hub.proxy }), token: hub.token === "" ? "" : REDACTED },
    },
    table,
  );
}

/** Hides the user and password of proxies, which are for the proxy only. */
const withoutUsers = (proxy: Readonly<Record<string, string | undefined>>): Fields =>
  Object.fromEntries(
    Object.entries(proxy).map(([name, text]) => [name, text?.replace(/\/\/[^/]*@/, `//${REDACTED}@`)] as const),
  );

type Fields = Readonly<Record<string, unknown>>;

function shownMapping(values: Fields, table: FieldTable): Fields {
  const entries = Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .sort(([left], [right]) => (left < right ? -1 : 1))
    .map(([name, value]) => [name, shownValue(value, table[name])] as const);
  return Object.fromEntries(entries);
}

function shownValue(value: unknown, field: Field | undefined): unknown {
  const isMapping = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isMapping) return shownMapping(value as Fields, field !== undefined && "fields" in field ? field.fields : {});
  const kind = field !== undefined && "kind" in field ? field.kind : undefined;
  if (typeof value !== "number") return value;
  if (kind === "duration") return formatDuration(millis(value));
  return kind === "bytes" ? formatQuantity({ nano: BigInt(value) * 1_000_000_000n, format: "BinarySI" }) : value;
}
