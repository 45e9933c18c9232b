import { lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";

export const lookup: LookupFunction = systemLookup as LookupFunction;
