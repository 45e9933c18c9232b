/**
 * A time as Kubernetes writes it: RFC 3339 with whole seconds, `2026-01-31T12:00:00Z`.
 * @param at a Date, or milliseconds of Unix time
 */
export const kubeTime = (at: Date | number): string => new Date(at).toISOString().replace(/\.\d+Z$/, "Z");
