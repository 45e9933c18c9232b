import type { PodParser } from "@picolet/agent/sources/api-source.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";

/** Always there. */
export const LOADED_PARSER: PodParser = { parse: parsePod, load: async () => undefined };
