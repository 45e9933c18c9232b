export { nearestName } from "@picolet/protocol/nearest-name.ts";
