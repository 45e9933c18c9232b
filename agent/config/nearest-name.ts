export { nearestName } from "../../protocol/nearest-name.ts";
