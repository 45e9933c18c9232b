import { componentTests } from "./cases/components.ts";
import { csiTests } from "./cases/csi.ts";
import { deviceTests } from "./cases/devices.ts";
import { environmentTests } from "./cases/environment.ts";
import { isolationTests } from "./cases/isolation.ts";
import { kubeletApiTests } from "./cases/kubelet-api.ts";
import { lifecycleTests } from "./cases/lifecycle.ts";
import { nodeObjectTests } from "./cases/node-objects.ts";
import { payloadVolumeTests } from "./cases/payload-volumes.ts";
import { podNetworkTests } from "./cases/pod-network.ts";
import { podTests } from "./cases/pods.ts";
import { probeTests } from "./cases/probes.ts";
import { resizeTests } from "./cases/resize.ts";
import { runtimeTests } from "./cases/runtime.ts";
import { scratchVolumeTests } from "./cases/scratch-volumes.ts";
import type { ConformanceTest } from "./framework/conformance-test.ts";

export const allTests: readonly ConformanceTest[] = [
  ...environmentTests,
  ...podTests,
  ...runtimeTests,
  ...lifecycleTests,
  ...probeTests,
  ...isolationTests,
  ...resizeTests,
  ...nodeObjectTests,
  ...kubeletApiTests,
  ...deviceTests,
  ...componentTests,
  ...csiTests,
  ...podNetworkTests,
  ...payloadVolumeTests,
  ...scratchVolumeTests,
];
