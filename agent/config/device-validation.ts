/** Validates `devices` and `allowedDevices`. */

import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { isDeviceResource } from "../plan/admission/admission-resources.ts";
import { problemOfAllowed } from "../plan/admission/requested-devices.ts";
import type { Configuration } from "./configuration-defaults.ts";

/** Each is read again whenever something is plugged in. */
const MAX_RULES = 32;
const MAX_MATCHES = 16;
/** Node paths with `*` and `?` alone: other patterns could read the whole file system. */
const MATCH =
  /^(\/dev\/[-\w.:*?/]+|(lib)?usb:[0-9a-fA-F]{4}:[0-9a-fA-F]{4}|cdi:[a-z0-9][-a-z0-9.]*\/[A-Za-z0-9][-\w]*(=[-\w.:]+)?)$/;
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

export function validateDevices({ devices }: Configuration, problems: FieldProblems): void {
  if (devices.length > MAX_RULES) problems.tooMany("devices", devices.length, MAX_RULES);
  const names = devices.map(({ name }) => name);
  devices.forEach(({ name, match }, index) => {
    const at = `devices[${index}]`;
    if (!isDeviceResource(name))
      problems.invalid(`${at}.name`, name, "must be an extended resource such as example.com/camera");
    else if (names.indexOf(name) < index) problems.duplicate(`${at}.name`, name);
    if (match.length > MAX_MATCHES) problems.tooMany(`${at}.match`, match.length, MAX_MATCHES);
    match.forEach((pattern, number) => {
      if (!MATCH.test(pattern) || pattern.includes("..") || pattern.includes("**"))
        problems.invalid(
          `${at}.match[${number}]`,
          pattern,
          "must be a path below /dev, which may have * and ?, usb:VENDOR:PRODUCT, libusb:VENDOR:PRODUCT, or cdi:VENDOR/CLASS",
        );
    });
  });
}

export function validateAllowedDevices({ allowedDevices }: Configuration, problems: FieldProblems): void {
  if (allowedDevices.length > MAX_RULES) problems.tooMany("allowedDevices", allowedDevices.length, MAX_RULES);
  allowedDevices.forEach(({ match, namespaces }, index) => {
    const at = `allowedDevices[${index}]`;
    if (match.length > MAX_MATCHES) problems.tooMany(`${at}.match`, match.length, MAX_MATCHES);
    match.forEach((pattern, number) => {
      const problem = problemOfAllowed(pattern);
      if (problem !== undefined) problems.invalid(`${at}.match[${number}]`, pattern, problem);
    });
    namespaces.forEach((namespace, number) => {
      if (namespace !== "*" && !NAMESPACE.test(namespace))
        problems.invalid(`${at}.namespaces[${number}]`, namespace, "must be the name of a namespace, or *");
    });
  });
}
