/** The component adapter against the suite that every adapter passes, with real components in real processes. */
import { runtimeAdapterConformance } from "@picolet/runtime-test-kit/conformance/conformance.ts";
import { denseFixture, wasmFixture } from "../support/wasm/wasm-fixture.ts";

const LACKS = {
  ignoreTerm: "a component has no signals: SIGTERM ends it",
  exec: "a component has no second program to start",
  upgrade: "what a component writes is in its log, and it has no address",
} as const;

runtimeAdapterConformance("wasm", wasmFixture, { lacks: LACKS });

runtimeAdapterConformance("wasm, dense", denseFixture, {
  lacks: { ...LACKS, cgroups: "a cgroup is that of the process, for all containers of the namespace" },
});
