// What every page behind the login needs.

import "./dialog.js";
import "./forms.js";
import "./live.js";
import "./time.js";
