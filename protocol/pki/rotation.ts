/** As the kubelet: somewhere between, so that a fleet that joined together does not renew together. */
const ROTATE_FROM = 0.7;
const ROTATE_TO = 0.9;

/**
 * When a certificate is replaced, in milliseconds since 1970.
 * @param chance 0 to 1, of `Random`
 */
export function rotationTimeMs(
  { notBeforeMs, notAfterMs }: { readonly notBeforeMs: number; readonly notAfterMs: number },
  chance: number,
): number {
  return notBeforeMs + (notAfterMs - notBeforeMs) * (ROTATE_FROM + (ROTATE_TO - ROTATE_FROM) * chance);
}
