-- Takes the temperatures away; `reelabel calibrate` fits them anew.

DROP TABLE reelabel.calibration;
