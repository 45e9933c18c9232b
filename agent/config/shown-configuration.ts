/** A configuration as a file would have it, for people and for /configz. Loaded only when somebody asks: it needs the schema. */

import { formatDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { formatQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type * as z from "zod/mini";
import type { Configuration } from "./configuration.ts";
import { makeConfigurationSchema, makeKinds } from "./configuration-schema.ts";

/** In the place of what would let its reader in somewhere: the token of a hub, headers for a web server. */
export const REDACTED = "***";

/** Fields by name, durations as Go writes them, sizes as quantities. What is not set and has no default is left out. */
export function shownConfiguration(configuration: Configuration): Readonly<Record<string, unknown>> {
  const { hub, staticPodURLHeader, wasm } = configuration;
  const headers = Object.entries(staticPodURLHeader).map(
    ([name, values]) => [name, values.map(() => REDACTED)] as const,
  );
  const kinds = makeKinds();
  const shown = shownMapping(
    {
      ...configuration,
      wasm: { ...wasm, proxy: withoutUsers(wasm.proxy) },
      staticPodURLHeader: Object.fromEntries(headers),
      hub: hub === null ? undefined : { ...hub, token: hub.token === "" ? "" : REDACTED },
    },
    makeConfigurationSchema(kinds),
    kinds,
  );
  return shown;
}

/** Who a proxy is told that this is goes to nobody else. */
const withoutUsers = (proxy: Readonly<Record<string, string | undefined>>): Fields =>
  Object.fromEntries(
    Object.entries(proxy).map(([name, text]) => [name, text?.replace(/\/\/[^/]*@/, `//${REDACTED}@`)] as const),
  );

type Fields = Readonly<Record<string, unknown>>;
type Kinds = ReturnType<typeof makeKinds>;

function shownMapping(values: Fields, schema: z.core.$ZodType, kinds: Kinds): Fields {
  const shape = shapeOf(schema);
  const entries = Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .sort(([left], [right]) => (left < right ? -1 : 1))
    .map(([name, value]) => [name, shownValue(value, shape[name], kinds)] as const);
  return Object.fromEntries(entries);
}

function shownValue(value: unknown, schema: z.core.$ZodType | undefined, kinds: Kinds): unknown {
  if (schema === kinds.duration && typeof value === "number") return formatDuration(millis(value));
  if (schema === kinds.bytes && typeof value === "number") {
    return formatQuantity({ nano: BigInt(value) * 1_000_000_000n, format: "BinarySI" });
  }
  const isMapping = typeof value === "object" && value !== null && !Array.isArray(value);
  return isMapping && schema !== undefined ? shownMapping(value as Fields, schema, kinds) : value;
}

/** Nothing for what is no mapping of known fields. */
function shapeOf(schema: z.core.$ZodType): Readonly<Record<string, z.core.$ZodType>> {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  if (def.type === "optional") return shapeOf(def.innerType);
  return def.type === "object" ? def.shape : {};
}
