/** By itself: an agent without a hub needs no more of keys to see that there are none. */
export const KEY_FILE = "store-keys.json";
