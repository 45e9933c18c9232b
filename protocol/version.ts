/** Of every program of picolet; the same as package.json's, which a test checks. */
export const VERSION = "0.1.0";
