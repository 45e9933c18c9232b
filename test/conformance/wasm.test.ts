/** The component adapter against the suite that every adapter passes, with real components in real processes. */
import { runtimeAdapterConformance } from "../../runtime-adapters/contract/conformance.ts";
import { wasmFixture } from "../support/wasm-fixture.ts";

runtimeAdapterConformance("wasm", wasmFixture, {
  lacks: {
    ignoreTerm: "a component has no signals: SIGTERM ends its process",
    exec: "a component has no second program to start",
    upgrade: "what a component writes is in its log, and it has no address",
  },
});
