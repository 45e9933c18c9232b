export interface Line {
  readonly slope: number;
  /** Standard error of the slope, as if the points' distances from the line were independent. */
  readonly slopeError: number;
  readonly intercept: number;
}

/** Least squares. @throws with fewer than three points, or all of one x */
export function linearRegression(points: readonly (readonly [x: number, y: number])[]): Line {
  const count = points.length;
  if (count < 3) throw new RangeError("a slope with its error needs three points");
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / count;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / count;
  let [xx, xy] = [0, 0];
  for (const [x, y] of points) {
    xx += (x - meanX) ** 2;
    xy += (x - meanX) * (y - meanY);
  }
  if (xx === 0) throw new RangeError("the points have one x");
  const slope = xy / xx;
  const intercept = meanY - slope * meanX;
  const residuals = points.reduce((sum, [x, y]) => sum + (y - intercept - slope * x) ** 2, 0);
  return { slope, intercept, slopeError: Math.sqrt(residuals / (count - 2) / xx) };
}
