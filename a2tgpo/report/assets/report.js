"use strict";
// A link to something inside a closed <details> opens it.
(() => {
  const show = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const closed = target && target.closest("details");
    if (closed) {
      closed.open = true;
      target.scrollIntoView({ block: "center" });
    }
  };
  addEventListener("hashchange", show);
  show();
})();
