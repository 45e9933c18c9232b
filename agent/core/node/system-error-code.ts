/** `ENOENT` and the like; "" for what is no error of a system call. */
export const errorCode = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
