/**
 * containerd's own image service, for what CRI has no call for. Source: the public definition
 * containerd/api/services/images/v1/images.proto.
 */

import type { CriClient } from "../wire/cri-client.ts";
import { message, nested, string, stringMap, strings } from "../wire/protobuf.ts";
import { CRI_NAMESPACE } from "./containerd-events.ts";

/** From 1.7 on containerd says of an image with this label that it is pinned. */
const PINNED_LABEL = "io.cri-containerd.pinned";

const Image = message("Image", { name: string(1), labels: stringMap(2) });
const update = {
  path: "/containerd.services.images.v1.Images/Update",
  request: message("UpdateImageRequest", {
    image: nested(1, Image),
    updateMask: nested(2, message("FieldMask", { paths: strings(1) })),
  }),
  response: message("UpdateImageResponse", {}),
  metadata: ["containerd-namespace", CRI_NAMESPACE],
};

/**
 * @param name canonical, with its tag
 * @throws `unimplemented` where the runtime is another one, `not_found`
 */
export async function setPinnedLabel(
  client: CriClient,
  name: string,
  isPinned: boolean,
  signal: AbortSignal,
): Promise<void> {
  const labels = new Map([[PINNED_LABEL, isPinned ? "pinned" : ""]]);
  const updateMask = { paths: [`labels.${PINNED_LABEL}`] };
  await client.call(update, { image: { name, labels }, updateMask }, signal);
}
