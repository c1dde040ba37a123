export const hasCity = (output) => output.includes("Turin");
