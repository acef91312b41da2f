// What every page behind the login needs.

import "./clock.js";
import "./copy.js";
import "./dialog.js";
import "./forms.js";
import "./keys.js";
import "./live.js";
import "./rail.js";
import "./refresh.js";
import "./seek.js";
import "./time.js";
