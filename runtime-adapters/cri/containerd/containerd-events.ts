/**
 * containerd's own event service, on the same socket as CRI and in every version. Source: the public definitions
 * containerd/api/services/events/v1/events.proto and containerd/api/events/task.proto.
 */
import { bytes, message, nested, string, strings } from "../wire/protobuf.ts";

/** The namespace in which containerd's CRI plugin keeps its containers. */
export const CRI_NAMESPACE = "k8s.io";

const Any = message("Any", { typeUrl: string(1), value: bytes(2) });
const Envelope = message("Envelope", { namespace: string(2), topic: string(3), event: nested(4, Any) });

export const subscribe = {
  path: "/containerd.services.events.v1.Events/Subscribe",
  request: message("SubscribeRequest", { filters: strings(1) }),
  response: Envelope,
  metadata: ["containerd-namespace", CRI_NAMESPACE],
};

/** Whoever subscribes gets it; containerd keeps nothing of it. */
export const publish = {
  path: "/containerd.services.events.v1.Events/Publish",
  request: message("PublishRequest", { topic: string(1), event: nested(2, Any) }),
  response: message("Nothing", {}),
  metadata: ["containerd-namespace", CRI_NAMESPACE],
};

/** Ours: comes back to whoever published it. The value is of `typeUrl`, and nobody else's. */
export const ECHO_TOPIC = "/picolet/echo";
export const ECHO_TYPE = "picolet.io/echo";

/** The first process of a container has ended and been cleaned up after. `containerId` is a container's or a sandbox's. */
export const TaskDelete = message("TaskDelete", { containerId: string(1) });
export const TASK_DELETE_TOPIC = "/tasks/delete";

/** The kernel has killed a process of the container for want of memory. It may be told after the container's end. */
export const TaskOom = message("TaskOOM", { containerId: string(1) });
export const TASK_OOM_TOPIC = "/tasks/oom";
