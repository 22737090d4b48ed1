"""How load is applied: MLPerf LoadGen and the closed loop."""
