/** Runs when all others of a shared process have: one that ends early does not report it. */
export const LAST_TEST = "all test files of this process have run";
