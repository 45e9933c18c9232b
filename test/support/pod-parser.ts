import type { PodParser } from "../../agent/sources/api-source.ts";
import { parsePod } from "../../protocol/parse-pod.ts";

/** Always there. */
export const LOADED_PARSER: PodParser = { parse: parsePod, load: async () => undefined };
