import type { ConformanceTest } from "./framework/conformance-test.ts";
import { environmentTests } from "./node/environment.ts";
import { payloadVolumeTests } from "./storage/payload-volumes.ts";

export const allTests: readonly ConformanceTest[] = [...environmentTests, ...payloadVolumeTests];
