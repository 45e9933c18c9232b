import type { ConformanceTest } from "./framework/conformance-test.ts";
import { podNetworkTests } from "./network/pod-network.ts";
import { environmentTests } from "./node/environment.ts";
import { isolationTests } from "./node/isolation.ts";
import { lifecycleTests } from "./node/lifecycle.ts";
import { nodeObjectTests } from "./node/node-objects.ts";
import { podTests } from "./node/pods.ts";
import { probeTests } from "./node/probes.ts";
import { resizeTests } from "./node/resize.ts";
import { runtimeTests } from "./node/runtime.ts";
import { payloadVolumeTests } from "./storage/payload-volumes.ts";
import { scratchVolumeTests } from "./storage/scratch-volumes.ts";

export const allTests: readonly ConformanceTest[] = [
  ...environmentTests,
  ...podTests,
  ...runtimeTests,
  ...lifecycleTests,
  ...probeTests,
  ...isolationTests,
  ...resizeTests,
  ...nodeObjectTests,
  ...podNetworkTests,
  ...payloadVolumeTests,
  ...scratchVolumeTests,
];
