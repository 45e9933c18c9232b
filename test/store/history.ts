import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { samplePod } from "../support/store-samples.ts";

/** What the writer wants in each revision: pods come, change and go. */
export function podsOf(revision: number): readonly DesiredPod[] {
  const names = ["a", "b", "c", "d", "e"].filter((_, n) => (revision >> n) % 2 === 0);
  return names.map((name, n) => samplePod(name, { image: `example/${name}:${Math.floor(revision / (n + 2))}` }));
}
