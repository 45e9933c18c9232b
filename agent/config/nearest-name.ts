export { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
