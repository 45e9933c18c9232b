/** Grant of picolet:board/nn: `wasm.picolet.io/nn: models` names the volume whose models are loaded by name. */
import type { InterfaceGrant } from "../../grants/syntax/interface-grant.ts";
import { parseVolumeName } from "../../grants/syntax/volume-name.ts";

/** Named tensors came with it: components made for older drafts call other functions. */
const DRAFT = /^0\.2\.0-rc-2024-10-28$/;

export const nnGrant: InterfaceGrant = {
  asksAgent: false,
  infers: true,
  proposals: { "wasi:nn/tensor": DRAFT, "wasi:nn/errors": DRAFT, "wasi:nn/inference": DRAFT, "wasi:nn/graph": DRAFT },
  annotations: { nn: (value) => parseVolumeName(value).problems },
};
