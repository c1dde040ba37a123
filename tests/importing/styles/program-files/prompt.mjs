export default ({ vars }) => `About ${vars.city}`;
