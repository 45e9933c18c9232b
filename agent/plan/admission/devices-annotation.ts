/** By itself: only a node that allows devices reads what a pod names in it. */
export const DEVICES_ANNOTATION = "picolet.io/devices";
