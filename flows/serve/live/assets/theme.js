// Follows the system's theme until the switch is used; the choice is then remembered if the browser allows it.

const themeSwitch = document.getElementById("theme");

function systemTheme() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function showTheme() {
  const isDark = (document.documentElement.dataset.theme ?? systemTheme()) === "dark";
  themeSwitch.setAttribute("aria-pressed", String(isDark));
}

function remembered(act) {
  try {
    return act(localStorage);
  } catch {
    return null; // a page opened from a file may have no storage
  }
}

const chosenTheme = remembered((storage) => storage.getItem("reelabel-theme"));
if (chosenTheme) document.documentElement.dataset.theme = chosenTheme;
themeSwitch.addEventListener("click", () => {
  const theme = themeSwitch.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  remembered((storage) => storage.setItem("reelabel-theme", theme));
  showTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
showTheme();
