"""The model beside runs that it did not see."""
