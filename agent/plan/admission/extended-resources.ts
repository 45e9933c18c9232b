const NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/** True for a resource with a domain that is not Kubernetes' own; a quota calls it `requests.NAME`. */
export const isExtendedResource = (name: string): boolean =>
  name.includes("/") && !name.includes("kubernetes.io/") && !name.startsWith("requests.");

/** True for a name under which a node may offer devices. */
export const isDeviceResource = (name: string): boolean => NAME.test(name) && isExtendedResource(name);
