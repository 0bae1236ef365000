// Preselects the zone that the browser itself uses, when it is on the list and none was chosen yet.
"use strict";

(() => {
  const field = document.querySelector("select[name=zone][data-unset]");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (field && zone && [...field.options].some((option) => option.value === zone)) field.value = zone;
})();
